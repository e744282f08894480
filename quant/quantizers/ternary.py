"""Ternary weights: the rounding of BitNet b1.58 (arXiv 2402.17764), for each 256 columns of a row.

A weight becomes -1, 0 or 1 by its quotient with the mean magnitude. The scale is then what least squares gives: the
mean magnitude of those that are not 0. So weights that are ternary already come out as they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..float_bits import round_to_bf16
from ..format import Quantized

F32 = NDArray[np.float32]

_BLOCK_COLUMNS = 256


def quantize_ternary(x: F32) -> Quantized:
    """x: finite float32 [rows, cols]."""
    rows, cols = x.shape
    num_blocks = -(-cols // _BLOCK_COLUMNS)
    padded = np.zeros((rows, num_blocks * _BLOCK_COLUMNS), np.float32)
    padded[:, :cols] = x
    blocks = padded.reshape(rows, num_blocks, _BLOCK_COLUMNS)
    magnitudes = np.abs(blocks).astype(np.float64)  # in double, the mean of equal values is that value
    columns = np.full(num_blocks, _BLOCK_COLUMNS)
    columns[-1] = cols - (num_blocks - 1) * _BLOCK_COLUMNS
    mean = magnitudes.sum(axis=2) / columns
    is_set = magnitudes > mean[:, :, None] / 2
    scale = (magnitudes * is_set).sum(axis=2) / np.maximum(is_set.sum(axis=2), 1)
    codes = np.where(is_set, np.sign(blocks), 0).astype(np.int8) + 1
    return Quantized(
        np.ascontiguousarray(codes.astype(np.uint8).reshape(padded.shape)[:, :cols]),
        (round_to_bf16(scale.astype(np.float32)),),
    )
