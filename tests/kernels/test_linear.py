"""Matrix products: every level gives the bits of the scalar code, whatever the shape and the number of tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from edgert import _core

SHAPES = [(1, 1), (5, 17), (16, 64), (33, 200), (48, 1100), (16, 2304)]
SHAPES_OF_256 = [(1, 256), (5, 256), (33, 768), (16, 2304)]
# Their activations have a scale for every 32 columns.
BLOCKS_OF_32 = ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "mxfp4")
BLOCKS_OF_256 = ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs", "tq1_0", "tq2_0")
TOKENS = (1, 2, 3, 5, 8, 21)


def shapes_of(weight_format: str) -> list[tuple[int, int]]:
    if weight_format in BLOCKS_OF_256:
        return SHAPES_OF_256
    if weight_format in BLOCKS_OF_32:
        return [(rows, -(-cols // 32) * 32) for rows, cols in SHAPES]
    return SHAPES


def test_every_level_equals_scalar(
    isa: str, weight_format: str, rng: np.random.Generator, weights: Callable, product: Callable, equal_bits: Callable
) -> None:
    for rows, cols in shapes_of(weight_format):
        weight = weights(weight_format, rows, cols, rng)
        bias = rng.standard_normal(rows).astype(np.float32)
        for tokens in TOKENS:
            x = rng.standard_normal((tokens, cols)).astype(np.float32)
            assert equal_bits(product(isa, weight, x), product("scalar", weight, x)), (rows, cols, tokens)
        assert equal_bits(product(isa, weight, x, bias), product("scalar", weight, x, bias)), (rows, cols)


def test_a_token_does_not_depend_on_its_neighbours(
    isa: str, weight_format: str, rng: np.random.Generator, weights: Callable, product: Callable, equal_bits: Callable
) -> None:
    rows, cols = 40, 768
    weight = weights(weight_format, rows, cols, rng)
    x = rng.standard_normal((19, cols)).astype(np.float32)
    together = product(isa, weight, x)
    for token in range(len(x)):
        assert equal_bits(product(isa, weight, x[token : token + 1]), together[token : token + 1]), token


@pytest.mark.parametrize("fill", [0x00, 0xFF, 0x80, 0x7F, 0x81])
def test_extreme_codes_do_not_saturate(
    isa: str,
    quantized_format: str,
    fill: int,
    rng: np.random.Generator,
    weights: Callable,
    product: Callable,
    equal_bits: Callable,
) -> None:
    rows, cols = 16, 512
    weight = weights(quantized_format, rows, cols, rng, fill=fill)
    signs = np.where(rng.random((4, cols)) < 0.5, -1.0, 1.0)
    for x in (np.ones((4, cols)), -np.ones((4, cols)), signs):
        x = x.astype(np.float32)  # every activation becomes 127 or -127
        expected = product("scalar", weight, x)
        assert equal_bits(product(isa, weight, x), expected)
        assert equal_bits(product(isa, weight, x[:1]), expected[:1])


def test_extreme_codes_are_exact(
    quantized_format: str, rng: np.random.Generator, weights: Callable, product: Callable
) -> None:
    rows, cols = 16, 512
    for fill in (0x00, 0xFF, 0x80, 0x7F):
        weight = weights(quantized_format, rows, cols, rng, fill=fill)
        values = _core.dequantize("scalar", quantized_format, rows, cols, weight.parts).astype(np.float64)
        for sign in (1.0, -1.0):
            x = np.full((1, cols), sign, np.float32)
            bound = 1e-6 * np.abs(values).sum(axis=1)
            assert np.all(np.abs(product("scalar", weight, x)[0] - sign * values.sum(axis=1)) <= bound)


def test_products_of_dequantised_rows(
    weight_format: str, rng: np.random.Generator, weights: Callable, product: Callable
) -> None:
    """The scalar product against float64 on the dequantised weight and the quantised input."""
    for rows, cols in shapes_of(weight_format):
        weight = weights(weight_format, rows, cols, rng)
        x = rng.standard_normal((3, cols)).astype(np.float32)
        values = _core.dequantize("scalar", weight_format, rows, cols, weight.parts).astype(np.float64)
        inputs = x.astype(np.float64)
        if weight_format not in ("f32", "f16", "bf16"):
            columns = 32 if weight_format in BLOCKS_OF_32 else 64
            codes, scales, _ = _core.quantize("scalar", x, columns)
            inputs = (codes.astype(np.float64) * np.repeat(scales.astype(np.float64), columns, axis=1))[:, :cols]
        # One rounding of the product of the scales and one of the sum for each step.
        bound = (cols / 16 + 4) * 2.0**-24 * (np.abs(inputs) @ np.abs(values).T) * 4 + 1e-30
        assert np.all(np.abs(product("scalar", weight, x) - inputs @ values.T) <= bound), (rows, cols)


def test_non_finite_inputs_stay_visible(
    isa: str, weight_format: str, rng: np.random.Generator, weights: Callable, product: Callable
) -> None:
    weight = weights(weight_format, 16, 256, rng)
    for bad in (np.nan, np.inf, -np.inf):
        x = rng.standard_normal((2, 256)).astype(np.float32)
        x[0, 70] = bad
        y = product(isa, weight, x)
        assert not np.isfinite(y[0]).any()
        assert np.isfinite(y[1]).all()
