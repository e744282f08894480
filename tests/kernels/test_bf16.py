"""Float weights on matrix units in bfloat16: not the contract's bits, but within the bound of docs/numerics.md."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from edgert import _core

KERNEL = "tile_bf16"
F32 = NDArray[np.float32]
FORMATS = ("f32", "f16", "bf16")


@pytest.fixture
def tile_isa(isa: str) -> str:
    if KERNEL not in _core.rounded_kernel_names(isa):
        pytest.skip("no matrix unit for bfloat16")
    return isa


def as_bf16(values: F32) -> F32:
    """To the nearest bfloat16, of two the even one, by the definition: the 16 low bits against their half."""
    bits = values.view(np.uint32)
    low, high = bits & 0xFFFF, bits >> 16
    return ((high + ((low > 0x8000) | ((low == 0x8000) & (high & 1 == 1)))) << 16).view(np.float32)


def pack(values: F32, format_name: str) -> NDArray[np.uint8]:
    if format_name == "f32":
        return values.reshape(-1).view(np.uint8)
    if format_name == "f16":
        return values.astype(np.float16).reshape(-1).view(np.uint8)
    return (as_bf16(values).view(np.uint32) >> 16).astype(np.uint16).reshape(-1).view(np.uint8)


def unpack(raw: NDArray[np.uint8], format_name: str) -> F32:
    if format_name == "f32":
        return raw.view(np.float32)
    if format_name == "f16":
        return raw.view(np.float16).astype(np.float32)
    return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize(
    ("tokens", "rows", "cols"),
    [(2, 1, 1), (3, 17, 31), (16, 16, 64), (17, 40, 65), (33, 33, 512), (70, 100, 1171), (32, 16, 1024)],
)
def test_products_stay_within_the_bound(
    tile_isa: str, format_name: str, tokens: int, rows: int, cols: int, rng: np.random.Generator
) -> None:
    raw = pack(rng.standard_normal((rows, cols)).astype(np.float32), format_name)
    w = unpack(raw, format_name).reshape(rows, cols)
    x = rng.standard_normal((tokens, cols)).astype(np.float32)
    bias = rng.standard_normal(rows).astype(np.float32)
    contract = np.asarray(_core.linear(tile_isa, format_name, rows, cols, [raw], x))
    plain = np.asarray(_core.linear(tile_isa, format_name, rows, cols, [raw], x, kernel=KERNEL))
    magnitudes = np.abs(x).astype(np.float64) @ np.abs(w).astype(np.float64).T
    rounded_inputs = 1 if format_name == "bf16" else 2
    bound = (1 + 2**-8) ** rounded_inputs - 1 + (cols + 8) * 2**-22
    assert (np.abs(plain.astype(np.float64) - contract) <= bound * magnitudes).all()
    # Of factors that were rounded here, only the order of the sums is left, which is far less.
    rounded = as_bf16(x).astype(np.float64) @ as_bf16(w).astype(np.float64).T
    assert (np.abs(plain - rounded) <= (cols + 8) * 2**-23 * magnitudes).all()
    with_bias = np.asarray(_core.linear(tile_isa, format_name, rows, cols, [raw], x, bias, kernel=KERNEL))
    assert (with_bias == plain + bias).all()


@pytest.mark.parametrize("format_name", FORMATS)
def test_integers_are_exact(tile_isa: str, format_name: str, rng: np.random.Generator) -> None:
    """Eight bits are a bfloat16, and sums below 2^24 are exact in any order: every index has its place."""
    rows, cols, tokens = 45, 700, 45
    w = rng.integers(-99, 100, (rows, cols)).astype(np.float32)
    x = rng.integers(-9, 10, (tokens, cols)).astype(np.float32)
    y = np.asarray(_core.linear(tile_isa, format_name, rows, cols, [pack(w, format_name)], x, kernel=KERNEL))
    assert (y == x.astype(np.int64) @ w.astype(np.int64).T).all()


def test_non_finite_values_stay_visible(tile_isa: str, weights: Callable, rng: np.random.Generator) -> None:
    weight = weights("f32", 16, 256, rng)
    for bad in (np.nan, -np.nan, np.inf, -np.inf):
        x = rng.standard_normal((2, 256)).astype(np.float32)
        x[0, 70] = bad
        y = np.asarray(_core.linear(tile_isa, "f32", 16, 256, weight.parts, x, kernel=KERNEL))
        assert not np.isfinite(y[0]).any()
        assert np.isfinite(y[1]).all()


def test_the_bits_do_not_depend_on_threads_or_neighbours(tile_isa: str, rng: np.random.Generator) -> None:
    w, x = rng.standard_normal((64, 600)).astype(np.float32), rng.standard_normal((40, 600)).astype(np.float32)
    raw = [pack(w, "f16")]
    whole = np.asarray(_core.linear(tile_isa, "f16", 64, 600, raw, x, kernel=KERNEL))
    for first, last in ((0, 2), (5, 25), (31, 40)):
        part = np.asarray(_core.linear(tile_isa, "f16", 64, 600, raw, x[first:last], kernel=KERNEL))
        assert (part == whole[first:last]).all()


def test_one_token_is_not_taken(tile_isa: str) -> None:
    with pytest.raises(_core.CoreError, match="tile_bf16, which takes no 1 tokens"):
        _core.linear(tile_isa, "f32", 1, 1, [np.zeros(4, np.uint8)], np.zeros((1, 1), np.float32), kernel=KERNEL)
