"""What q3_k and q6_k (ggml) share: value = (d * sc) * (q - centre), a signed sc for 16 columns, f16 d for 256."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..format import F32, U8, Quantized
from ..layout import num_groups, pack_scales, unpack_scales


def pack_super_scales(matrix: Quantized) -> list[U8]:
    """The parts `superscale` and `subscale` of d float16 [rows, cols / 256] and sc int8 [rows, cols / 16]."""
    d, sc = matrix.scales
    return [pack_scales(d, 1, d.shape[1]), pack_scales(sc, 4, num_groups(matrix.codes.shape[1]))]


def unpack_super_scales(parts: Sequence[U8], rows: int, cols: int) -> tuple[np.ndarray, np.ndarray]:
    """The inverse of `pack_super_scales`: d and sc."""
    d = unpack_scales(parts[0], np.float16, 1, cols // 256, rows, cols // 256)
    return d, unpack_scales(parts[1], np.int8, 4, num_groups(cols), rows, cols // 16)


def dequantize_centred(matrix: Quantized, centre: int) -> F32:
    """(d * sc) * (q - centre), float32 [rows, cols]."""
    d, sc = matrix.scales
    scale = np.repeat(d.astype(np.float32), 16, axis=1) * sc.astype(np.float32)
    result: F32 = np.repeat(scale, 16, axis=1) * (matrix.codes.astype(np.float32) - np.float32(centre))
    return result
