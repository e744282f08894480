"""The C++ formats against the numpy reference: parts and values by ==, products within a bound."""

from __future__ import annotations

import numpy as np
import pytest

from edgert import _core
from edgert.quant import format as formats

SHAPES = [(1, 1), (3, 64), (16, 96), (17, 130), (40, 200), (33, 512), (64, 768)]
LEVELS = [name for name, is_built, is_supported in _core.isa_levels() if is_built and is_supported]


def fitting(name: str) -> list[tuple[int, int]]:
    """The shapes whose columns fill whole blocks."""
    block = formats.get(name).spec.block_columns or 1
    return [(rows, cols) for rows, cols in SHAPES if cols % block == 0]


CASES = [(name, rows, cols) for name in formats.names() for rows, cols in fitting(name)]
GGML = [case for case in CASES if formats.get(case[0]).spec.block_columns]


def test_both_sides_know_the_same_formats():
    assert sorted(_core.format_names()) == sorted(formats.names())


@pytest.mark.parametrize(("name", "rows", "cols"), GGML)
def test_pack_gives_the_same_bytes(name, rows, cols, rng, random_blocks):
    raw = random_blocks(name, rows, cols, rng)
    made = formats.get(name)
    expected = made.pack(made.decode(raw, cols))
    found = _core.pack(name, raw, cols)
    assert [part.nbytes for part in found] == [part.nbytes for part in expected]
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert np.array_equal(a.reshape(-1), b), f"part {made.spec.parts[i].name}"


@pytest.mark.parametrize(("name", "rows", "cols"), CASES)
def test_dequantised_values_are_equal(name, rows, cols, rng, random_matrix):
    made = formats.get(name)
    matrix = random_matrix(name, rows, cols, rng)
    expected = made.dequantize(matrix)
    for level in LEVELS:
        found = _core.dequantize(level, name, rows, cols, made.pack(matrix))
        assert np.array_equal(found, expected), level


@pytest.mark.parametrize(("name", "rows", "cols"), CASES)
def test_products_are_within_the_bound(name, rows, cols, rng, random_matrix):
    """Against float64 over the same activations: float32 rounding of at most `terms` additions, no more."""
    made = formats.get(name)
    matrix = random_matrix(name, rows, cols, rng)
    weight = made.dequantize(matrix).astype(np.float64)
    x = rng.standard_normal((3, cols)).astype(np.float32)
    seen = x.astype(np.float64)
    if not made.spec.is_float:
        group = 32 if made.spec.block_columns == 32 else 64  # columns that share an activation scale
        codes, scales, _ = _core.quantize(LEVELS[0], x, group)
        seen = codes[:, :cols].astype(np.float64) * np.repeat(scales.astype(np.float64), group, axis=1)[:, :cols]
    expected = seen @ weight.T
    # Terms of one float line: 64 columns at most; a minimum is a term of its own, larger than the difference.
    size = np.abs(seen) @ (np.abs(weight) + _minimum_part(name, matrix)).T
    bound = (cols / 16 + 8) * 2.0**-24 * size + 1e-30
    for level in LEVELS:
        found = _core.linear(level, name, rows, cols, made.pack(matrix), x)
        assert (np.abs(found - expected) <= bound).all(), level


def _minimum_part(name: str, matrix) -> np.ndarray | float:
    if name in ("q4_1", "q5_1"):
        minimum = matrix.scales[1].astype(np.float64)
    elif name in ("q2_k", "q4_k", "q5_k"):
        _, dmin, _, m = matrix.scales
        minimum = np.repeat(dmin.astype(np.float64), m.shape[1] // dmin.shape[1], axis=1) * m
    else:
        # Offsets of the codes are summed as integers, exactly.
        return 0.0
    return 2 * np.abs(np.repeat(minimum, matrix.codes.shape[1] // minimum.shape[1], axis=1))
