"""Round-to-nearest with a searched scale for p1 to p8: one bf16 scale for each 64 columns of a row.

Every candidate scale is rounded to bf16 first; the one with the least squared error wins, then is refined by least
squares for its codes. All vectorised: float32, in the caller's chunk (which should fit the cache).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..float_bits import round_to_bf16
from ..format import Quantized
from ..layout import GROUP_COLUMNS, num_groups

F32 = NDArray[np.float32]

# Candidate scales as shares of the one that reaches the group's largest value: where the optimum of trained and of
# Gaussian weights lies at each width.
_SHARES = {
    2: (0.46, 0.54, 0.62, 0.70, 0.78, 0.87, 1.0),
    3: (0.58, 0.66, 0.73, 0.80, 0.87, 0.95, 1.04),
    4: (0.70, 0.77, 0.83, 0.89, 0.95, 1.0, 1.05),
    5: (0.80, 0.85, 0.89, 0.93, 0.97, 1.0, 1.03),
    6: (0.90, 0.93, 0.95, 0.97, 0.985, 1.0, 1.015),
    7: (0.95, 0.965, 0.98, 0.99, 1.0, 1.008),
}
_REFINEMENTS = 2
_P8_SHARES = (1.0, 0.996, 0.992, 0.988, 0.98)
SMALLEST = np.float32(2.0**-100)  # below it a group is zero, as for activations


def quantize_p1(x: F32) -> Quantized:
    """value = +-scale: the mean of the magnitudes has the least squared error."""
    rows, cols = x.shape
    groups, top = normalised_groups(x)
    in_group = np.minimum(cols - GROUP_COLUMNS * np.arange(num_groups(cols)), GROUP_COLUMNS).astype(np.float32)
    mean = np.abs(groups).sum(axis=1, keepdims=True) / np.tile(in_group, rows)[:, None]
    scale = np.where(top >= SMALLEST, round_to_bf16(mean * top), np.float32(0))
    return finish((groups >= 0).astype(np.uint8), scale, x.shape)


def quantize_p2(x: F32) -> Quantized:
    return _quantize_planes(x, 2)


def quantize_p3(x: F32) -> Quantized:
    return _quantize_planes(x, 3)


def quantize_p4(x: F32) -> Quantized:
    return _quantize_planes(x, 4)


def quantize_p5(x: F32) -> Quantized:
    return _quantize_planes(x, 5)


def quantize_p6(x: F32) -> Quantized:
    return _quantize_planes(x, 6)


def quantize_p7(x: F32) -> Quantized:
    return _quantize_planes(x, 7)


def _quantize_planes(x: F32, bits: int) -> Quantized:
    """value = scale * (2 q + 1 - 2^bits). x: finite float32 [rows, cols]."""
    groups, top = normalised_groups(x)
    half = 1 << (bits - 1)
    ceiling = top / np.float32(2 * half - 1)  # the scale whose largest value is the group's
    best = _Best(groups)
    for share in _SHARES[bits]:
        best.offer(round_to_bf16(ceiling * np.float32(share)), top, half, 0.5)
    for _ in range(_REFINEMENTS):
        best.offer(round_to_bf16(best.least_squares(top, half, 0.5)), top, half, 0.5)
    scale = np.where(top >= SMALLEST, best.scale, np.float32(0))
    u = _snap(groups, _steps(scale, top), half, 0.5)
    codes = (u + np.float32(half - 0.5)).astype(np.uint8)
    codes[top[:, 0] < SMALLEST] = 0
    return finish(codes, scale, x.shape)


def quantize_p8(x: F32) -> Quantized:
    """value = scale * q, q in -127..127. x: finite float32 [rows, cols]."""
    groups, top = normalised_groups(x)
    ceiling = top / np.float32(127)
    best = _Best(groups)
    for share in _P8_SHARES:
        best.offer(round_to_bf16(ceiling * np.float32(share)) / np.float32(2), top, 127, 0.0)
    scale = np.where(top >= SMALLEST, best.scale, np.float32(0))
    codes = _snap(groups, _steps(scale, top), 127, 0.0).astype(np.int8)
    codes[top[:, 0] < SMALLEST] = 0
    return finish(codes, scale * np.float32(2), x.shape)


class _Best:
    """The best scale of each group so far. Values are 2 * scale * u with u on a grid of step 1."""

    def __init__(self, groups: F32) -> None:
        self.groups = groups
        self.scale = np.zeros((len(groups), 1), np.float32)
        # The squared error less sum(x^2), which is the same for every candidate.
        self.gain = np.full((len(groups), 1), np.inf, np.float32)
        self.buffer = np.empty_like(groups)

    def offer(self, scale: F32, top: F32, half: int, offset: float) -> None:
        """Keeps `scale` [groups, 1] where its error is smaller."""
        xu, uu = self._sums(_steps(scale, top), half, offset)
        step = np.float32(2) * scale / np.maximum(top, SMALLEST)
        gain = step * (step * uu - np.float32(2) * xu)
        better = gain < self.gain
        self.gain = np.where(better, gain, self.gain)
        self.scale = np.where(better, scale, self.scale)

    def least_squares(self, top: F32, half: int, offset: float) -> F32:
        """The scale that is best for the codes of the scale kept so far."""
        xu, uu = self._sums(_steps(self.scale, top), half, offset)
        result: F32 = np.maximum(xu, 0) / np.maximum(uu, np.float32(1e-30)) * top / np.float32(2)
        return result

    def _sums(self, steps: F32, half: int, offset: float) -> tuple[F32, F32]:
        u = _snap(self.groups, steps, half, offset, self.buffer)
        xu = np.einsum("ij,ij->i", self.groups, u)[:, None]
        return xu, np.einsum("ij,ij->i", u, u)[:, None]


def normalised_groups(x: F32) -> tuple[F32, F32]:
    """x in groups [n, 64] divided by their largest magnitude, and that magnitude [n, 1]."""
    rows, cols = x.shape
    padded_cols = num_groups(cols) * GROUP_COLUMNS
    if padded_cols != cols:
        padded = np.zeros((rows, padded_cols), np.float32)
        padded[:, :cols] = x
        x = padded
    groups = np.ascontiguousarray(x).reshape(-1, GROUP_COLUMNS)
    top = np.maximum(groups.max(axis=1), -groups.min(axis=1))[:, None]
    return groups * (np.float32(1) / np.maximum(top, SMALLEST)), top


def _steps(scale: F32, top: F32) -> F32:
    """How many grid steps the group's largest magnitude is."""
    result: F32 = top / np.maximum(np.float32(2) * scale, np.float32(1e-37))
    return result


def _snap(groups: F32, steps: F32, half: int, offset: float, out: F32 | None = None) -> F32:
    """The nearest grid points: half-integers within +-(half - 0.5) for offset 0.5, integers within +-half for 0."""
    u = np.multiply(groups, steps, out=out)
    if offset:
        np.floor(u, out=u)
        np.clip(u, np.float32(-half), np.float32(half - 1), out=u)
        u += np.float32(offset)
    else:
        np.rint(u, out=u)
        np.clip(u, np.float32(-half), np.float32(half), out=u)
    return u


def finish(codes: NDArray[np.generic], scale: F32, shape: tuple[int, ...]) -> Quantized:
    """Back to [rows, cols], and scales [rows, groups]. Padding columns get code 0."""
    rows, cols = shape
    matrix = codes.reshape(rows, -1)[:, :cols]
    return Quantized(np.ascontiguousarray(matrix), (scale.reshape(rows, -1),))
