"""Tables of activations in 8 bits: other bits than the contract's, but those of docs/numerics.md, within its bound."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from edgert import _core

KERNEL = "lut8"
ROUNDED_PER_GROUP = 56  # 16 quads, each within 3.5 of the middle of its eighth


def bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def sums_of_eighths(bits: NDArray[np.int64], codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """What the tables give for the set bits [rows, cols] of activations [cols], by the definition: [rows, groups]."""
    quads = (bits * codes).reshape(len(bits), -1, 16, 4).sum(axis=3)
    return (8 * (quads // 8)).sum(axis=2) + ROUNDED_PER_GROUP


def packed(bits: NDArray[np.int64], scales: NDArray[np.float32]) -> list[NDArray[np.uint8]]:
    """Parts of a p1 matrix whose rows are whole strips and whose columns are whole groups (docs/formats.md)."""
    rows, cols = bits.shape
    strips, groups = rows // 16, cols // 64
    scale_part = bf16(scales).reshape(strips, 16, groups).transpose(0, 2, 1)
    index = (bits.reshape(strips, 16, groups, 16, 4) << np.arange(4)).sum(axis=4)  # [strip, row, group, quad]
    halves = index.reshape(strips, 16, groups, 2, 2, 4)  # quad 8z + 4h + j
    both = halves[:, :, :, :, 0] | (halves[:, :, :, :, 1] << 4)  # [strip, row, group, z, j]
    code_part = both.transpose(0, 2, 3, 4, 1).astype(np.uint8)
    return [np.ascontiguousarray(part).reshape(-1).view(np.uint8) for part in (scale_part, code_part)]


@pytest.mark.parametrize(("rows", "cols"), [(16, 64), (80, 640), (48, 4096)])
def test_what_it_gives_is_what_is_written(isa: str, rows: int, cols: int, rng: np.random.Generator) -> None:
    bits = rng.integers(0, 2, (rows, cols))
    scales = np.exp2(rng.integers(-3, 3, (rows, cols // 64))).astype(np.float32)
    # A scale of 1 for every group: integers whose largest is 127. Everything below 2^24 is exact.
    codes = rng.integers(-127, 128, cols)
    codes[::64] = 127
    x = codes.astype(np.float32)[None]
    parts = packed(bits, scales)
    plain = np.asarray(_core.linear(isa, "p1", rows, cols, parts, x))[0]
    assert (plain == (np.repeat(scales, 64, axis=1) * (2 * bits - 1) * codes).sum(axis=1)).all()
    rounded = np.asarray(_core.linear(isa, "p1", rows, cols, parts, x, kernel=KERNEL))[0]
    dots = 2 * sums_of_eighths(bits, codes) - codes.reshape(-1, 64).sum(axis=1)
    assert (rounded == (scales * dots).sum(axis=1)).all()
    assert (np.abs(rounded - plain) <= 2 * ROUNDED_PER_GROUP * scales.sum(axis=1)).all()


def test_extreme_quads_stay_within_the_bound(isa: str) -> None:
    """Every index of a quad, with all activations at either end: nothing overflows."""
    for ends in itertools.product((-127, 127), repeat=4):
        codes = np.tile(np.array(ends), 16)
        bits = (np.arange(16)[:, None] >> np.arange(4)) & 1
        bits = np.tile(bits, (1, 16)).astype(np.int64)
        parts = packed(bits, np.ones((16, 1), np.float32))
        y = np.asarray(_core.linear(isa, "p1", 16, 64, parts, codes.astype(np.float32)[None], kernel=KERNEL))[0]
        exact = ((2 * bits - 1) * codes).sum(axis=1)
        assert (y == 2 * sums_of_eighths(bits, codes)[:, 0] - codes.sum()).all()
        assert (np.abs(y - exact) <= 2 * ROUNDED_PER_GROUP).all()


def test_it_is_never_taken_by_itself(isa: str) -> None:
    assert KERNEL in _core.rounded_kernel_names(isa)
    assert KERNEL not in _core.kernel_names(isa)
    with pytest.raises(_core.CoreError, match="lut8, which takes no 2 tokens"):
        parts = packed(np.zeros((16, 64), np.int64), np.ones((16, 1), np.float32))
        _core.linear(isa, "p1", 16, 64, parts, np.ones((2, 64), np.float32), kernel=KERNEL)
