"""The sparse side matrix: the few weights that a quantised matrix represents worst, beside it in float16.

Row by row (CSR; docs/formats.md, section 2). A weight is what its code says plus its outlier. The split into a dense
and a sparse part is that of SqueezeLLM (arXiv:2306.07629) and SpQR (arXiv:2306.03078).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgert.errors import ConvertError

from .layout import GROUP_COLUMNS, STRIP_ROWS, num_groups

F32 = NDArray[np.float32]

PART_NAMES = ("outlier_starts", "outlier_columns", "outlier_values")
MAX_COLUMNS = 1 << 16
MAX_SHARE = 0.05  # beyond it more bits for all weights cost less


@dataclass(frozen=True, slots=True)
class Outliers:
    """Row r has those from starts[r] to starts[r + 1]; columns ascend in a row."""

    starts: NDArray[np.uint32]  # [rows + 1]
    columns: NDArray[np.uint16]
    values: NDArray[np.float16]

    def add_to(self, dense: F32) -> F32:
        """The matrix [rows, cols] with them, each addition in float32."""
        whole: F32 = dense.copy()
        whole[_rows_of(self.starts), self.columns] += self.values.astype(np.float32)
        return whole


def part_bytes(rows: int, num_outliers: int) -> tuple[int, int, int]:
    """Bytes of each part of `PART_NAMES`."""
    return 4 * (rows + 1), 2 * num_outliers, 2 * num_outliers


def count(rows: int, cols: int, share: float) -> int:
    """How many `choose` takes of the first `rows` rows: the share of each strip, rounded."""
    strips, left = divmod(rows, STRIP_ROWS)
    return strips * round(share * STRIP_ROWS * cols) + round(share * left * cols)


def choose(x: F32, share: float) -> NDArray[np.bool_]:
    """Which weights of x [rows, cols], from a strip's first row on, become outliers.

    Of each strip those with the largest square over the root mean square of their group. Between a weight's size alone
    and its size within the group, this loses least of the three at 2 and 4 bits.
    """
    rows, cols = x.shape
    squares = np.zeros((rows, num_groups(cols) * GROUP_COLUMNS))
    squares[:, :cols] = x
    squares *= squares
    groups = squares.reshape(rows, -1, GROUP_COLUMNS)
    groups /= np.maximum(np.sqrt(groups.mean(axis=-1, keepdims=True)), np.finfo(np.float32).tiny)
    ranks = squares[:, :cols]
    chosen = np.zeros(x.shape, np.bool_)
    for begin in range(0, rows, STRIP_ROWS):
        strip = ranks[begin : begin + STRIP_ROWS]
        best = np.argsort(-strip, axis=None, kind="stable")[: round(share * strip.size)]
        chosen[begin : begin + STRIP_ROWS].flat[best] = True
    return chosen


def take(x: F32, chosen: NDArray[np.bool_], dense: F32) -> Outliers:
    """What the chosen weights of x lack in `dense`, the dequantised matrix. Raises ConvertError beyond float16."""
    lacking = x[chosen] - dense[chosen]
    with np.errstate(over="ignore"):
        values = lacking.astype(np.float16)
    if not np.isfinite(values).all():
        raise ConvertError(
            f"found an outlier of {np.abs(lacking).max():g}, expected at most 65504; convert without outliers"
        )
    starts = np.zeros(len(x) + 1, np.uint32)
    np.cumsum(chosen.sum(axis=1), out=starts[1:], dtype=np.uint32)
    return Outliers(starts, np.nonzero(chosen)[1].astype(np.uint16), values)


def problem(starts: NDArray[np.uint32], columns: NDArray[np.uint16], cols: int) -> str | None:
    """What is wrong with the places of outliers; the core refuses the same. None: nothing."""
    ends = starts.astype(np.int64)
    if ends[0] != 0:
        return f"row 0: found the start {ends[0]}, expected 0"
    if ends[-1] != len(columns):
        return f"row {len(ends) - 2}: found the end {ends[-1]}, expected {len(columns)}"
    if (bad := np.flatnonzero((ends[1:] < ends[:-1]) | (ends[1:] > len(columns)))).size:
        row = int(bad[0])
        return (
            f"row {row}: found the start {ends[row]} and the end {ends[row + 1]}, "
            f"expected ascending ones up to {len(columns)}"
        )
    rows = _rows_of(starts)
    if (bad := np.flatnonzero(columns.astype(np.int64) >= cols)).size:
        return f"row {rows[bad[0]]}: found column {columns[bad[0]]}, expected below {cols}"
    if (bad := np.flatnonzero((np.diff(columns.astype(np.int64)) <= 0) & (np.diff(rows) == 0))).size:
        return f"row {rows[bad[0]]}: found column {columns[bad[0] + 1]}, expected ascending ones"
    return None


def _rows_of(starts: NDArray[np.uint32]) -> NDArray[np.int64]:
    """The row of each outlier."""
    ends = starts.astype(np.int64)
    return np.repeat(np.arange(len(ends) - 1), ends[1:] - ends[:-1])
