"""Round-to-nearest for ggml's formats: q8_0, q4_0, q4_k, q6_k, and plain rounding to f16.

The block structure is llama.cpp's; the choice of scales is ours: a few candidates, least squares, f16 rounded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgert.errors import ConvertError

from ..float_bits import round_to_f16
from ..format import Quantized

F32 = NDArray[np.float32]

_TINY = np.float32(1e-30)
_Q4_0_SHARES = (0.80, 0.86, 0.92, 0.96, 1.0, 1.04, 1.1)
_Q6_K_SHARES = (0.94, 0.97, 1.0)
_Q4_K_SHARES = (0.80, 0.87, 0.93, 1.0)


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


def quantize_q6_k(x: F32) -> Quantized:
    """value = (d * sc) * (q - 32), sc int8 for 16 columns, d f16 for 256."""
    blocks = x.reshape(-1, 16)
    wanted = _search_signed(blocks, 32, _Q6_K_SHARES, f16=False).reshape(-1, 16)
    d = _f16(_extreme(wanted) / np.float32(-128))
    sc = _nearest(wanted, d, -128, 127)
    scale = (d * sc).reshape(-1, 1)
    codes = _nearest(blocks, scale, -32, 31) + np.float32(32)
    return Quantized(codes.astype(np.uint8).reshape(x.shape), (_rows(d, x, np.float16), _rows(sc, x, np.int8)))


def quantize_q4_k(x: F32) -> Quantized:
    """value = (d * sc) * q - (dmin * m), sc and m 0..63 for 32 columns, d and dmin f16 for 256."""
    blocks = x.reshape(-1, 32)
    step, minimum = _search_affine(blocks)
    d, sc = _six_bits(step.reshape(-1, 8))
    dmin, m = _six_bits(minimum.reshape(-1, 8))
    scale, low = (d * sc).reshape(-1, 1), (dmin * m).reshape(-1, 1)
    codes = _nearest(blocks + low, scale, 0, 15)
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


def _search_affine(blocks: F32) -> tuple[F32, F32]:
    """(step, minimum) [n, 1], both >= 0, of step * q - minimum with q in 0..15."""
    low = np.minimum(blocks.min(axis=1, keepdims=True), 0)
    span = np.maximum(blocks.max(axis=1, keepdims=True), 0) - low
    best_step, best_min = span / np.float32(15), -low
    best_error = np.full_like(low, np.inf)
    for share in _Q4_K_SHARES:
        step = span * np.float32(share / 15)
        minimum = -low * np.float32(share)
        for _ in range(2):  # the candidate itself, then least squares for its codes
            q = _nearest(blocks + minimum, step, 0, 15)
            error = _dot_self(step * q - minimum - blocks)
            better = error < best_error
            best_error = np.where(better, error, best_error)
            best_step, best_min = np.where(better, step, best_step), np.where(better, minimum, best_min)
            step, minimum = _fit_line(q, blocks)
    return best_step, best_min


def _fit_line(q: F32, x: F32) -> tuple[F32, F32]:
    """Least squares x = step * q - minimum; a negative minimum is put to 0."""
    n = np.float32(q.shape[1])
    sum_q, sum_x = q.sum(axis=1, keepdims=True), x.sum(axis=1, keepdims=True)
    qq, qx = _dot(q, q), _dot(q, x)
    determinant = n * qq - sum_q * sum_q
    step = np.where(determinant > 0, (n * qx - sum_q * sum_x) / np.maximum(determinant, _TINY), 0)
    minimum = (step * sum_q - sum_x) / n
    through_zero = qx / np.maximum(qq, _TINY)
    step = np.where(minimum < 0, through_zero, step)
    return np.maximum(step, 0).astype(np.float32), np.maximum(minimum, 0).astype(np.float32)


def _six_bits(values: F32) -> tuple[F32, F32]:
    """values [n, 8] >= 0 as d (f16) * 0..63."""
    d = _f16(values.max(axis=1, keepdims=True) / np.float32(63))
    return d, _nearest(values, d, 0, 63)


def _nearest(x: F32, step: F32, low: int, high: int) -> F32:
    """round(x / step) within low..high; 0 where the step is 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inverse = np.where(step == 0, np.float32(0), np.float32(1) / step)
        q = np.rint(x * inverse)
    result: F32 = np.clip(np.nan_to_num(q, copy=False), low, high)
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
