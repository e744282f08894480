"""Round-to-nearest for ggml's formats, and plain rounding to f16.

The block structure is llama.cpp's; the choice of scales is ours: a few candidates, least squares, f16 rounded.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from edgert.errors import ConvertError

from ..float_bits import round_to_f16
from ..format import Quantized
from ..formats.blocks import MICRO_VALUES, UNEVEN_VALUES

F32 = NDArray[np.float32]
Fit = Callable[[F32, F32], tuple[F32, F32]]

_TINY = np.float32(1e-30)
# Parts of the range of a block that the grid is tried on.
_Q4_0_SHARES = (0.80, 0.86, 0.92, 0.96, 1.0, 1.04, 1.1)
_Q5_0_SHARES = (0.90, 0.94, 0.97, 1.0, 1.03)
_Q6_K_SHARES = (0.94, 0.97, 1.0)
_Q3_K_SHARES = (0.70, 0.78, 0.86, 0.92, 0.96, 1.0, 1.04, 1.1)
_Q4_1_SHARES = (0.84, 0.90, 0.95, 1.0)
_Q4_K_SHARES = (0.80, 0.87, 0.93, 1.0)
_Q2_K_SHARES = (0.55, 0.65, 0.75, 0.85, 0.95, 1.0)
_FIVE_BIT_SHARES = (0.90, 0.94, 0.97, 1.0)
_IQ4_SHARES = (0.80, 0.86, 0.91, 0.96, 1.0, 1.05)


def round_f16(x: F32) -> Quantized:
    """Raises ConvertError where a value is beyond float16."""
    with np.errstate(over="ignore"):
        values = x.astype(np.float16)
    if not np.isfinite(values).all():
        raise ConvertError(
            f"float16: found a weight of {np.abs(x).max():.3g}, expected at most 65504; use p2, p3, p4 or p8"
        )
    return Quantized(values)


def quantize_q8_0(x: F32) -> Quantized:
    """value = d * q, 32 columns."""
    blocks = x.reshape(-1, 32)
    d = _f16(np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127))
    codes = _nearest(blocks, d, -127, 127)
    return Quantized(codes.astype(np.int8).reshape(x.shape), (_rows(d, x, np.float16),))


def quantize_q4_0(x: F32) -> Quantized:
    """value = d * (q - 8), 32 columns. d has the sign that gives the extreme value the code 0 (8 steps), or 15 (7)."""
    blocks = x.reshape(-1, 32)
    d = _search_signed(blocks, 8, _Q4_0_SHARES, f16=True)
    codes = _nearest(blocks, d, -8, 7) + np.float32(8)
    return Quantized(codes.astype(np.uint8).reshape(x.shape), (_rows(d, x, np.float16),))


def quantize_q5_0(x: F32) -> Quantized:
    """value = d * (q - 16), 32 columns; the sign of d as in q4_0."""
    blocks = x.reshape(-1, 32)
    d = _search_signed(blocks, 16, _Q5_0_SHARES, f16=True)
    codes = _nearest(blocks, d, -16, 15) + np.float32(16)
    return Quantized(codes.astype(np.uint8).reshape(x.shape), (_rows(d, x, np.float16),))


def quantize_q4_1(x: F32) -> Quantized:
    """value = d * q + m, q 0..15, d and m f16 for 32 columns."""
    return _quantize_with_minimum(x, 15, _Q4_1_SHARES)


def quantize_q5_1(x: F32) -> Quantized:
    """value = d * q + m, q 0..31, d and m f16 for 32 columns."""
    return _quantize_with_minimum(x, 31, _FIVE_BIT_SHARES)


def quantize_q3_k(x: F32) -> Quantized:
    """value = (d * sc) * (q - 4), sc -32..31 for 16 columns, d f16 for 256."""
    return _quantize_super(x, 4, 32, _Q3_K_SHARES)


def quantize_q6_k(x: F32) -> Quantized:
    """value = (d * sc) * (q - 32), sc int8 for 16 columns, d f16 for 256."""
    return _quantize_super(x, 32, 128, _Q6_K_SHARES)


def quantize_q2_k(x: F32) -> Quantized:
    """value = (d * sc) * q - (dmin * m), q 0..3, sc and m 0..15 for 16 columns, d and dmin f16 for 256."""
    return _quantize_super_min(x, 3, _Q2_K_SHARES, columns=16, sub_levels=15)


def quantize_q4_k(x: F32) -> Quantized:
    """value = (d * sc) * q - (dmin * m), q 0..15, sc and m 0..63 for 32 columns, d and dmin f16 for 256."""
    return _quantize_super_min(x, 15, _Q4_K_SHARES, columns=32, sub_levels=63)


def quantize_q5_k(x: F32) -> Quantized:
    """value = (d * sc) * q - (dmin * m), q 0..31, sc and m 0..63 for 32 columns, d and dmin f16 for 256."""
    return _quantize_super_min(x, 31, _FIVE_BIT_SHARES, columns=32, sub_levels=63)


def quantize_iq4_nl(x: F32) -> Quantized:
    """value = d * table[q], d f16 for 32 columns."""
    blocks = x.reshape(-1, 32)
    d = _search_uneven(blocks, f16=True)
    codes = _nearest_uneven(_over(blocks, d))
    return Quantized(codes.reshape(x.shape), (_rows(d, x, np.float16),))


def quantize_iq4_xs(x: F32) -> Quantized:
    """value = (d * sc) * table[q], sc -32..31 for 32 columns, d f16 for 256."""
    blocks = x.reshape(-1, 32)
    wanted = _search_uneven(blocks, f16=False).reshape(-1, 8)
    d = _f16(_extreme(wanted) / np.float32(-32))
    sc = _nearest(wanted, d, -32, 31)
    codes = _nearest_uneven(_over(blocks, (d * sc).reshape(-1, 1)))
    return Quantized(codes.reshape(x.shape), (_rows(d, x, np.float16), _rows(sc, x, np.int8)))


def quantize_mxfp4(x: F32) -> Quantized:
    """value = 2^(e - 128) * table[q], e for 32 columns: the better of the two powers of two that suit the largest."""
    blocks = x.reshape(-1, 32)
    _, exponent = np.frexp(np.abs(blocks).max(axis=1, keepdims=True))
    best_e, best_codes = np.zeros_like(exponent), np.zeros(blocks.shape, np.uint8)
    best_error = np.full(exponent.shape, np.inf, np.float32)
    for above in (124, 125):  # the largest is 4 to 8 steps, of which 6 is the last, or 2 to 4
        e = np.clip(exponent + above, 0, 252)
        step = np.ldexp(np.float32(1), e - 128)
        codes = _nearest_micro(_over(blocks, step))
        error = _dot_self(step * MICRO_VALUES[codes].astype(np.float32) - blocks)
        better = error < best_error
        best_error, best_e = np.where(better, error, best_error), np.where(better, e, best_e)
        best_codes = np.where(better, codes, best_codes)
    return Quantized(best_codes.reshape(x.shape), (_rows(best_e, x, np.uint8),))


def quantize_ternary(x: F32) -> Quantized:
    """value = d * (q - 1), d f16 for 256 columns: the largest magnitude, which is exact where weights are ternary."""
    blocks = x.reshape(-1, 256)
    d = _f16(np.abs(blocks).max(axis=1, keepdims=True))
    codes = _nearest(blocks, d, -1, 1) + np.float32(1)
    return Quantized(codes.astype(np.uint8).reshape(x.shape), (_rows(d, x, np.float16),))


def _search_uneven(blocks: F32, *, f16: bool) -> F32:
    """The d [n, 1], of either sign, with the least squared error of d * table[q]."""
    start = _extreme(blocks) / np.float32(UNEVEN_VALUES[0])
    best, best_gain = np.zeros_like(start), np.zeros_like(start)
    for share in (*_IQ4_SHARES, None):
        if share is not None:
            d = start * np.float32(share)
        else:  # at last what is best for the codes of the best so far
            values = UNEVEN_VALUES[_nearest_uneven(_over(blocks, best))].astype(np.float32)
            d = _dot(blocks, values) / _dot_self(values)
        d = _f16(d) if f16 else d
        values = UNEVEN_VALUES[_nearest_uneven(_over(blocks, d))].astype(np.float32)
        gain = d * (d * _dot_self(values) - np.float32(2) * _dot(blocks, values))
        better = gain < best_gain
        best, best_gain = np.where(better, d, best), np.where(better, gain, best_gain)
    result: F32 = best
    return result


def _nearest_uneven(x: F32) -> NDArray[np.uint8]:
    """The code whose value is nearest to x rounded: searching for each x itself takes five times as long."""
    return _UNEVEN_CODES[np.rint(np.clip(x, -127, 113)).astype(np.int16) + 127]


def _nearest_micro(x: F32) -> NDArray[np.uint8]:
    """Codes 0..7, and 8 more below zero."""
    magnitude = _nearest_index(np.abs(x), MICRO_VALUES[:8])
    result: NDArray[np.uint8] = magnitude | ((x < 0).astype(np.uint8) << np.uint8(3))
    return result


def _nearest_index(x: NDArray[np.generic], ascending: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Which of the values is nearest to each x."""
    middles = (ascending[1:].astype(np.float32) + ascending[:-1]) / 2
    return np.searchsorted(middles, x).astype(np.uint8)


_UNEVEN_CODES = _nearest_index(np.arange(-127, 114), UNEVEN_VALUES)


def _over(x: F32, step: F32) -> F32:
    """x / step; 0 where the step is 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inverse = np.where(step == 0, np.float32(0), np.float32(1) / step)
        result: F32 = np.nan_to_num(x * inverse, copy=False)
    return result


def _quantize_with_minimum(x: F32, levels: int, shares: tuple[float, ...]) -> Quantized:
    """d * q + m with a d and an m of any sign for each 32 columns."""
    blocks = x.reshape(-1, 32)
    low = blocks.min(axis=1, keepdims=True)
    span = blocks.max(axis=1, keepdims=True) - low
    candidates = [(span * np.float32(s / levels), low + span * np.float32((1 - s) / 2)) for s in shares]
    d, m = _best_line(blocks, levels, candidates, _fit_line, f16=True)
    codes = _nearest(blocks - m, d, 0, levels)
    return Quantized(codes.astype(np.uint8).reshape(x.shape), (_rows(d, x, np.float16), _rows(m, x, np.float16)))


def _quantize_super(x: F32, half: int, sub_half: int, shares: tuple[float, ...]) -> Quantized:
    """(d * sc) * (q - half), sc -sub_half .. sub_half - 1 for 16 columns, d f16 for 256."""
    blocks = x.reshape(-1, 16)
    wanted = _search_signed(blocks, half, shares, f16=False).reshape(-1, 16)
    d = _f16(_extreme(wanted) / np.float32(-sub_half))
    sc = _nearest(wanted, d, -sub_half, sub_half - 1)
    scale = (d * sc).reshape(-1, 1)
    codes = _nearest(blocks, scale, -half, half - 1) + np.float32(half)
    return Quantized(codes.astype(np.uint8).reshape(x.shape), (_rows(d, x, np.float16), _rows(sc, x, np.int8)))


def _quantize_super_min(x: F32, levels: int, shares: tuple[float, ...], *, columns: int, sub_levels: int) -> Quantized:
    """(d * sc) * q - (dmin * m): q 0..levels; sc and m 0..sub_levels for so many columns, d and dmin f16 for 256."""
    blocks = x.reshape(-1, columns)
    low = np.minimum(blocks.min(axis=1, keepdims=True), 0)
    span = np.maximum(blocks.max(axis=1, keepdims=True), 0) - low
    candidates = [(span * np.float32(s / levels), low * np.float32(s)) for s in shares]
    step, minimum = _best_line(blocks, levels, candidates, _fit_line_below_zero, f16=False)
    d, sc = _sub_scales(step.reshape(-1, 256 // columns), sub_levels)
    dmin, m = _sub_scales(-minimum.reshape(-1, 256 // columns), sub_levels)
    scale, offset = (d * sc).reshape(-1, 1), (dmin * m).reshape(-1, 1)
    codes = _nearest(blocks + offset, scale, 0, levels)
    return Quantized(
        codes.astype(np.uint8).reshape(x.shape),
        (_rows(d, x, np.float16), _rows(dmin, x, np.float16), _rows(sc, x, np.uint8), _rows(m, x, np.uint8)),
    )


def _search_signed(blocks: F32, half: int, shares: tuple[float, ...], *, f16: bool) -> F32:
    """The signed d [n, 1] with the least squared error of d * q, q in -half..half - 1."""
    start = _extreme(blocks) / np.float32(-half)
    best = np.zeros_like(start)
    best_gain = np.zeros_like(start)
    candidates = [start * np.float32(share) for share in shares]
    for index in range(len(candidates) + 1):
        d = candidates[index] if index < len(candidates) else _least_squares(blocks, best, half)
        if f16:
            d = _f16(d)
        q = _nearest(blocks, d, -half, half - 1)
        gain = d * (d * _dot(q, q) - np.float32(2) * _dot(blocks, q))
        better = gain < best_gain
        best, best_gain = np.where(better, d, best), np.where(better, gain, best_gain)
    result: F32 = best
    return result


def _least_squares(blocks: F32, d: F32, half: int) -> F32:
    q = _nearest(blocks, d, -half, half - 1)
    result: F32 = _dot(blocks, q) / np.maximum(_dot(q, q), _TINY)
    return result


def _best_line(blocks: F32, levels: int, candidates: list[tuple[F32, F32]], fit: Fit, *, f16: bool) -> tuple[F32, F32]:
    """(step, minimum) [n, 1] with the least squared error of step * q + minimum, q in 0..levels.

    Each candidate is tried, and then what `fit` makes of its codes; f16: both are rounded before.
    """
    best_step, best_min = candidates[-1]
    best_error = np.full_like(best_min, np.inf)
    for step, minimum in candidates:
        for _ in range(2):
            if f16:
                step, minimum = _f16(step), _f16(minimum)
            q = _nearest(blocks - minimum, step, 0, levels)
            error = _dot_self(step * q + minimum - blocks)
            better = error < best_error
            best_error = np.where(better, error, best_error)
            best_step, best_min = np.where(better, step, best_step), np.where(better, minimum, best_min)
            step, minimum = fit(q, blocks)
    return best_step, best_min


def _fit_line(q: F32, x: F32) -> tuple[F32, F32]:
    """Least squares x = step * q + minimum; a step of 0 where all codes are the same."""
    n = np.float32(q.shape[1])
    sum_q, sum_x = q.sum(axis=1, keepdims=True), x.sum(axis=1, keepdims=True)
    determinant = n * _dot(q, q) - sum_q * sum_q
    step = np.where(determinant > 0, (n * _dot(q, x) - sum_q * sum_x) / np.maximum(determinant, _TINY), 0)
    step = step.astype(np.float32)
    return step, (sum_x - step * sum_q) / n


def _fit_line_below_zero(q: F32, x: F32) -> tuple[F32, F32]:
    """The same with step >= 0 and minimum <= 0: a line whose minimum would be above goes through zero."""
    step, minimum = _fit_line(q, x)
    through_zero = _dot(q, x) / np.maximum(_dot(q, q), _TINY)
    step = np.where(minimum > 0, through_zero, step)
    return np.maximum(step, np.float32(0)), np.minimum(minimum, np.float32(0))


def _sub_scales(values: F32, levels: int) -> tuple[F32, F32]:
    """values [n, m] >= 0 as d (f16) * 0..levels."""
    d = _f16(values.max(axis=1, keepdims=True) / np.float32(levels))
    return d, _nearest(values, d, 0, levels)


def _nearest(x: F32, step: F32, low: int, high: int) -> F32:
    """round(x / step) within low..high; 0 where the step is 0."""
    result: F32 = np.clip(np.rint(_over(x, step)), low, high)
    return result


def _extreme(x: F32) -> F32:
    """The value of largest magnitude in each row, with its sign: [n, 1]."""
    high, low = x.max(axis=1, keepdims=True), x.min(axis=1, keepdims=True)
    result: F32 = np.where(high > -low, high, low)
    return result


def _f16(d: F32) -> F32:
    rounded = round_to_f16(d.astype(np.float32))
    if not np.isfinite(rounded).all():
        raise ConvertError(f"float16 scale: found {np.abs(d).max():.3g}, expected at most 65504; use p2, p3, p4 or p8")
    return rounded


def _dot(a: F32, b: F32) -> F32:
    result: F32 = np.einsum("ij,ij->i", a, b)[:, None]
    return result


def _dot_self(a: F32) -> F32:
    return _dot(a, a)


def _rows(scales: F32, x: F32, dtype: type[np.generic]) -> NDArray[np.generic]:
    return scales.reshape(x.shape[0], -1).astype(dtype)
