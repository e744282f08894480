"""Outliers beside a quantised matrix: y = fma(value, x, y) in ascending columns after the dots, before the bias."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgert import _core

TOKENS = (1, 2, 3, 7, 16, 20)

RowOutliers = list[tuple[list[int], list[float]]]


def outliers_of(rows: int, cols: int, rng: np.random.Generator) -> RowOutliers:
    """Rows with none, with one, with many; a full one if the matrix is narrow. Values have few bits: see `expected`."""
    found = []
    for row in range(rows):
        count = (0, 1, 5, min(cols, 40))[row % 4]
        columns = np.sort(rng.choice(cols, count if count < cols else cols, replace=False))
        found.append((columns.tolist(), (rng.integers(-1024, 1025, len(columns)) / 1024).tolist()))
    return found


def inputs(tokens: int, cols: int, rng: np.random.Generator) -> np.ndarray:
    return (rng.integers(-2048, 2049, (tokens, cols)) / 256).astype(np.float32)


def expected(dense: np.ndarray, outliers: RowOutliers, x: np.ndarray) -> np.ndarray:
    """In float64, where products and sums of such values are exact, so that rounding once is an fma."""
    y = dense.copy()
    for row, (columns, values) in enumerate(outliers):
        for column, value in zip(columns, values, strict=True):
            y[:, row] = (y[:, row].astype(np.float64) + value * x[:, column].astype(np.float64)).astype(np.float32)
    return y


def test_products(
    isa: str, quantized_format: str, rng: np.random.Generator, weights: Callable, equal_bits: Callable
) -> None:
    for rows, cols in ((21, 256), (33, 768)):
        weight = weights(quantized_format, rows, cols, rng)
        outliers = outliers_of(rows, cols, rng)
        bias = rng.standard_normal(rows).astype(np.float32)
        for tokens in TOKENS:
            x = inputs(tokens, cols, rng)
            for level in (isa, "scalar"):
                call = (level, quantized_format, rows, cols, weight.parts, x)
                sparse = expected(np.asarray(_core.linear(*call)), outliers, x)
                assert equal_bits(np.asarray(_core.linear(*call, outliers=outliers)), sparse), (level, tokens)
                assert equal_bits(np.asarray(_core.linear(*call, bias, outliers)), sparse + bias), (level, tokens)


def test_rows_as_floats(quantized_format: str, rng: np.random.Generator, weights: Callable) -> None:
    """What an embedding reads: the dense value plus the outlier."""
    rows, cols = 21, 256
    weight = weights(quantized_format, rows, cols, rng)
    outliers = outliers_of(rows, cols, rng)
    whole = np.asarray(_core.dequantize("scalar", quantized_format, rows, cols, weight.parts))
    for row, (columns, values) in enumerate(outliers):
        whole[row, columns] += np.array(values, np.float32)
    found = np.asarray(_core.dequantize("scalar", quantized_format, rows, cols, weight.parts, outliers))
    assert np.array_equal(found, whole)
