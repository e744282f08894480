"""ternary: value = scale * (q - 1), q 0..2, five in a byte as in tq1_0; 256 columns share the bf16 scale.

Unlike tq1_0 it takes any number of columns: the last block of four groups is padded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgert.errors import UnsupportedFormatError

from ..float_bits import bf16_to_float32, float32_to_bf16
from ..format import F32, U8, FormatSpec, PartSpec, Quantized, register
from ..layout import pack_scales, unpack_scales
from .tq1_0 import pack_trits, unpack_trits


@register
class Ternary:
    """Codes uint8 0..2; scales: one float32 [rows, ceil(cols / 256)] with values that bf16 holds."""

    spec = FormatSpec(name="ternary", scale_columns=256, parts=(PartSpec("scale", 32, 4), PartSpec("trit", 832, 4)))

    def decode(self, blocks: U8, cols: int) -> Quantized:
        raise UnsupportedFormatError("ternary: found file blocks, expected parts; this format has no GGUF blocks")

    def pack(self, matrix: Quantized) -> list[U8]:
        (scale,) = matrix.scales
        return [pack_scales(float32_to_bf16(scale), 1, scale.shape[1]), pack_trits(matrix.codes)]

    def unpack(self, parts: Sequence[U8], rows: int, cols: int) -> Quantized:
        blocks = -(-cols // 256)
        scale = bf16_to_float32(unpack_scales(parts[0], np.uint16, 1, blocks, rows, blocks))
        return Quantized(unpack_trits(parts[1], rows, cols), (scale,))

    def dequantize(self, matrix: Quantized) -> F32:
        (scale,) = matrix.scales
        step = np.repeat(scale, 256, axis=1)[:, : matrix.codes.shape[1]]
        result: F32 = step * (matrix.codes.astype(np.float32) - np.float32(1))
        return result
