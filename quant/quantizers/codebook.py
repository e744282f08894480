"""Nested codebooks c2, c3 and c4: tables of a tensor and a scale for each 64 columns, fitted in turns, without data.

A table has one value for each code. Views at fewer bits drop the last bits of the code and have tables of their own,
but the same scales. What is minimised is the squared error of the full width plus small shares of the views' errors, so
that the views of a c4 come near to what is made for their width.

A scale may be negative: the table then need not be symmetric, and its one longer end meets the largest weight of a
group, whatever its sign.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..float_bits import round_to_bf16
from ..format import Quantized
from ..formats.codebooks import TABLE_BYTES, table_of
from .rtn import SMALLEST, finish, normalised_groups

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Indices = NDArray[np.intp]

SAMPLE_VALUES = 1 << 18  # weights that tables are fitted on: more change the error in its fourth digit
_LARGEST = 127  # the table's value that lies farthest out
# Tables of Gaussian weights, from which the fit starts.
_START = {
    2: (-76, -18, 44, 127),
    3: (-98, -63, -35, -11, 14, 44, 78, 127),
    4: (-110, -86, -66, -50, -37, -25, -14, -4, 6, 16, 28, 41, 56, 74, 98, 127),
}
# Shares of the views' errors in what is minimised: width -> (width of a view, its share).
_VIEW_SHARES: dict[int, tuple[tuple[int, float], ...]] = {2: (), 3: (), 4: ((2, 0.086), (3, 0.126))}
# Candidate scales as shares of the one that reaches the group's largest value.
_SHARES = {
    2: (0.46, 0.54, 0.62, 0.70, 0.78, 0.87, 1.0),
    3: (0.58, 0.66, 0.73, 0.80, 0.87, 0.95, 1.04),
    4: (0.70, 0.77, 0.83, 0.89, 0.95, 1.0, 1.05),
}
_NEIGHBOURS = (0.90, 0.92, 0.94, 0.96, 0.98, 1.02, 1.04, 1.06, 1.08, 1.10)  # of the best of them
_ROUNDS = 12
_STEPS = 8  # a value is looked up at multiples of 1 / _STEPS of the tables' unit
_REACH = 2 * _LARGEST  # values farther out belong to the last cell


@dataclass(frozen=True, slots=True)
class Codebook:
    """The int8 tables of a tensor, [1, 32] as the part `table` has them, and the width that they were made for."""

    bits: int
    tables: NDArray[np.int8]


def quantize_c2(x: F32) -> Quantized:
    return _fit_and_quantize(x, 2)


def quantize_c3(x: F32) -> Quantized:
    return _fit_and_quantize(x, 3)


def quantize_c4(x: F32) -> Quantized:
    return _fit_and_quantize(x, 4)


def _fit_and_quantize(x: F32, bits: int) -> Quantized:
    sample = np.concatenate([x[begin:end] for begin, end in sample_rows(*x.shape)])
    return quantize(x, fit(sample, bits))


def sample_rows(rows: int, cols: int) -> list[tuple[int, int]]:
    """Ranges of rows whose weights stand for all: every one, or SAMPLE_VALUES or so of them in 32 even pieces."""
    if rows * cols <= SAMPLE_VALUES:
        return [(0, rows)]
    pieces = min(32, rows)
    count = max(1, SAMPLE_VALUES // (pieces * cols))
    begins = [i * (rows - count) // max(pieces - 1, 1) for i in range(pieces)]
    return [(begin, begin + count) for begin in begins]


def fit(x: F32, bits: int) -> Codebook:
    """The tables for weights such as x, finite float32 [rows, cols]: scales, codes and tables in turns."""
    groups, top = normalised_groups(x)
    is_used = top[:, 0] >= SMALLEST
    groups, top = groups[is_used], top[is_used]
    start = np.array(_START[bits], np.float32)
    # The views' values begin in the middle of their cells.
    cells = _Cells(bits, {width: start.reshape(1 << width, -1).mean(axis=1) for width in range(2, bits + 1)})
    for _ in range(_ROUNDS if len(groups) else 0):
        scale = _best_scale(groups, top, cells)
        codes = cells.codes(groups, _inverse(scale, top))
        cells = _Cells(bits, _centroids(groups, scale, top, codes, cells))
    tables = np.zeros((1, TABLE_BYTES), np.int8)
    for width, values in cells.tables.items():
        table_of(tables, width)[:] = values
    return Codebook(bits, tables)


def quantize(x: F32, codebook: Codebook) -> Quantized:
    """Scales and codes of a matrix, or of some rows of it, for tables that are given."""
    bits = codebook.bits
    tables = {width: table_of(codebook.tables, width).astype(np.float32) for width in range(2, bits + 1)}
    cells = _Cells(bits, tables)
    groups, top = normalised_groups(x)
    scale = _best_scale(groups, top, cells)
    codes = cells.codes(groups, _inverse(scale, top)).astype(np.uint8)
    is_zero = top[:, 0] < SMALLEST
    codes[is_zero], scale[is_zero] = 0, 0
    made = finish(codes, scale, x.shape)
    return Quantized(made.codes, (*made.scales, codebook.tables))


class _Cells:
    """Which code a value gets, and what it adds to the error: tables float32 by width, the views' among them."""

    def __init__(self, bits: int, tables: dict[int, F32]) -> None:
        self.bits = bits
        self.tables = tables
        shares = {bits: 1.0} | dict(_VIEW_SHARES[bits])
        of_code = np.arange(1 << bits)
        values = {width: tables[width].astype(np.float64)[of_code >> (bits - width)] for width in shares}
        # Sums over the widths: error = scale^2 * squares - 2 * scale * weight * values + weight^2 * shares.
        sums = sum(share * values[width] for width, share in shares.items())
        squares = sum(share * values[width] ** 2 for width, share in shares.items())
        # Two neighbouring codes are equally good where these are.
        steps = np.maximum(np.diff(sums), 1e-9)
        bounds = np.maximum.accumulate(np.diff(squares) / (2 * steps))
        places = np.arange(-_REACH * _STEPS, _REACH * _STEPS + 1) / _STEPS
        self._code_at: Indices = np.searchsorted(bounds, places)
        self._sum_at: F32 = sums[self._code_at].astype(np.float32)
        self._square_at: F32 = squares[self._code_at].astype(np.float32)

    def codes(self, groups: F32, inverse: F32) -> Indices:
        found: Indices = np.take(self._code_at, self._places(groups, inverse), mode="clip")
        return found

    def moments(self, groups: F32, inverse: F32) -> tuple[F32, F32]:
        """Of each group [n, 1]: the sum of weight * value, and that of value^2, over all widths."""
        places = self._places(groups, inverse)
        products: F32 = np.einsum("ij,ij->i", groups, np.take(self._sum_at, places, mode="clip"))[:, None]
        squares: F32 = np.take(self._square_at, places, mode="clip").sum(axis=1, keepdims=True)
        return products, squares

    def _places(self, groups: F32, inverse: F32) -> Indices:
        """Where values / scale lie in the tables of this class; the nearest place, clipped when it is looked up."""
        places = groups * (inverse * np.float32(_STEPS))
        places += np.float32(_REACH * _STEPS + 0.5)
        whole: Indices = places.astype(np.intp)
        return whole


def _best_scale(groups: F32, top: F32, cells: _Cells) -> F32:
    """The scale [groups, 1], one that bf16 holds, with the least error: candidates of both signs, then those about the
    best of them, and after either what least squares gives for the codes found."""
    search = _Search(groups, top, cells)
    for share in _SHARES[cells.bits]:
        for sign in (1, -1):
            search.offer(top * np.float32(sign * share / _LARGEST))
    search.offer(search.refined * top)
    center = search.best
    for factor in _NEIGHBOURS:
        search.offer(center * np.float32(factor))
    search.offer(search.refined * top)
    return search.best


class _Search:
    """The best scale of each group so far, and what least squares makes of it, as a share of the largest weight."""

    def __init__(self, groups: F32, top: F32, cells: _Cells) -> None:
        self._groups, self._top, self._cells = groups, top, cells
        self._error = np.full(top.shape, np.inf, np.float32)
        self.best = np.ones(top.shape, np.float32)
        self.refined: F32 = np.ones(top.shape, np.float32)

    def offer(self, scale: F32) -> None:
        scale = round_to_bf16(scale)
        products, squares = self._cells.moments(self._groups, _inverse(scale, self._top))
        step = scale / np.maximum(self._top, SMALLEST)
        error = step * (step * squares - np.float32(2) * products)
        is_better = error < self._error
        self._error = np.where(is_better, error, self._error)
        self.best = np.where(is_better, scale, self.best)
        self.refined = np.where(is_better, products / np.maximum(squares, np.float32(1e-30)), self.refined)


def _inverse(scale: F32, top: F32) -> F32:
    """What a group's normalised weights are multiplied with to become values of the table."""
    away_from_zero: F32 = np.where(np.abs(scale) < 1e-37, np.float32(1e-37), scale)
    result: F32 = top / away_from_zero
    return result


def _centroids(groups: F32, scale: F32, top: F32, codes: Indices, cells: _Cells) -> dict[int, F32]:
    """The tables with the least error for these scales and codes, rounded to int8, the farthest value at 127."""
    relative = top.astype(np.float64) / float(top.max())
    step = scale.astype(np.float64) / np.maximum(top, SMALLEST) * relative
    count = 1 << cells.bits
    flat = codes.reshape(-1)
    products = np.bincount(flat, (step * relative * groups).reshape(-1), count)
    weights = np.bincount(flat, np.broadcast_to(step * step, groups.shape).reshape(-1), count)
    found: dict[int, F64] = {}
    for width in range(2, cells.bits + 1):
        cell_weights = weights.reshape(1 << width, -1).sum(axis=1)
        means = products.reshape(1 << width, -1).sum(axis=1) / np.maximum(cell_weights, 1e-300)
        found[width] = np.where(cell_weights > 0, means, cells.tables[width].astype(np.float64))
    largest = max(float(np.abs(found[cells.bits]).max()), 1e-30)
    return {width: _whole(values * (_LARGEST / largest)) for width, values in found.items()}


def _whole(values: F64) -> F32:
    """Ascending whole numbers that a byte holds."""
    rounded: F32 = np.sort(np.clip(np.rint(values), -_LARGEST, _LARGEST)).astype(np.float32)
    return rounded
