"""p8: value = scale * q, q in -127..127 as a byte, one bf16 scale for 64 columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgert.errors import UnsupportedFormatError

from ..float_bits import bf16_to_float32, float32_to_bf16
from ..format import F32, U8, FormatSpec, PartSpec, Quantized, register
from ..layout import from_quads, num_groups, num_strips, pack_bits, pack_scales, to_quads, unpack_bits, unpack_scales


@register
class P8:
    """Codes int8; scales: one float32 [rows, groups] with values that bf16 holds."""

    spec = FormatSpec(name="p8", scale_columns=64, parts=(PartSpec("scale", 32), PartSpec("byte", 1024)))

    def decode(self, blocks: U8, cols: int) -> Quantized:
        raise UnsupportedFormatError("p8: found file blocks, expected parts; this format has no GGUF blocks")

    def pack(self, matrix: Quantized) -> list[U8]:
        (scale,) = matrix.scales
        quads = to_quads(matrix.codes.view(np.uint8))
        return [pack_scales(float32_to_bf16(scale), 1, scale.shape[1]), pack_bits(quads, 8)]

    def unpack(self, parts: Sequence[U8], rows: int, cols: int) -> Quantized:
        groups = num_groups(cols)
        scale = bf16_to_float32(unpack_scales(parts[0], np.uint16, 1, groups, rows, groups))
        codes = from_quads(unpack_bits(parts[1], 8, num_strips(rows), groups), rows, cols)
        return Quantized(codes.view(np.int8), (scale,))

    def dequantize(self, matrix: Quantized) -> F32:
        (scale,) = matrix.scales
        cols = matrix.codes.shape[1]
        return np.repeat(scale, 64, axis=1)[:, :cols] * matrix.codes.astype(np.float32)
