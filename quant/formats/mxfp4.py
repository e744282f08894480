"""mxfp4 (OCP Microscaling, as ggml has it): value = 2^(e - 128) * table[q], 32 columns share the exponent e, a byte.

The table holds twice the values of 4-bit floats (one bit of sign, two of exponent, one of mantissa), hence 128 and not
127. A block is e, then 16 bytes: byte j holds column j in its low nibble, column j + 16 in its high one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..format import F32, U8, FormatSpec, PartSpec, Quantized, register
from ..layout import from_quads, num_groups, num_strips, pack_bits, pack_scales, to_quads, unpack_bits, unpack_scales
from .blocks import MICRO_VALUES, halves_of_32


@register
class MXFP4:
    """Codes uint8 0..15; scales: e uint8 [rows, cols / 32]."""

    spec = FormatSpec(
        name="mxfp4",
        scale_columns=32,
        block_columns=32,
        block_bytes=17,
        parts=(PartSpec("exponent", 32), PartSpec("nibble", 512)),
    )

    def decode(self, blocks: U8, cols: int) -> Quantized:
        b = blocks.reshape(-1, cols // 32, 17)
        return Quantized(halves_of_32(b[:, :, 1:]).reshape(-1, cols), (b[:, :, 0],))

    def pack(self, matrix: Quantized) -> list[U8]:
        (e,) = matrix.scales
        return [pack_scales(e, 2, num_groups(matrix.codes.shape[1])), pack_bits(to_quads(matrix.codes), 4)]

    def unpack(self, parts: Sequence[U8], rows: int, cols: int) -> Quantized:
        groups = num_groups(cols)
        e = unpack_scales(parts[0], np.uint8, 2, groups, rows, cols // 32)
        return Quantized(from_quads(unpack_bits(parts[1], 4, num_strips(rows), groups), rows, cols), (e,))

    def dequantize(self, matrix: Quantized) -> F32:
        (e,) = matrix.scales
        scale = np.ldexp(np.float32(1), e.astype(np.int32) - 128)
        result: F32 = np.repeat(scale, 32, axis=1) * MICRO_VALUES[matrix.codes].astype(np.float32)
        return result
