"""iq4_nl (ggml): value = d * table[q], codes of 4 bits for 16 uneven values, 32 columns share the f16 d.

A block is d, then 16 bytes: byte j holds column j in its low nibble, column j + 16 in its high one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..format import F32, U8, FormatSpec, PartSpec, Quantized, register
from ..layout import from_quads, num_groups, num_strips, pack_bits, pack_scales, to_quads, unpack_bits, unpack_scales
from .blocks import UNEVEN_VALUES, halves_of_32


@register
class IQ4_NL:
    """Codes uint8 0..15; scales: d float16 [rows, cols / 32]."""

    spec = FormatSpec(
        name="iq4_nl",
        scale_columns=32,
        block_columns=32,
        block_bytes=18,
        parts=(PartSpec("scale", 64), PartSpec("nibble", 512)),
    )

    def decode(self, blocks: U8, cols: int) -> Quantized:
        b = blocks.reshape(-1, cols // 32, 18)
        d = np.ascontiguousarray(b[:, :, :2]).view(np.float16)[:, :, 0]
        return Quantized(halves_of_32(b[:, :, 2:]).reshape(-1, cols), (d,))

    def pack(self, matrix: Quantized) -> list[U8]:
        (d,) = matrix.scales
        return [pack_scales(d, 2, num_groups(matrix.codes.shape[1])), pack_bits(to_quads(matrix.codes), 4)]

    def unpack(self, parts: Sequence[U8], rows: int, cols: int) -> Quantized:
        groups = num_groups(cols)
        d = unpack_scales(parts[0], np.float16, 2, groups, rows, cols // 32)
        return Quantized(from_quads(unpack_bits(parts[1], 4, num_strips(rows), groups), rows, cols), (d,))

    def dequantize(self, matrix: Quantized) -> F32:
        (d,) = matrix.scales
        result: F32 = np.repeat(d.astype(np.float32), 32, axis=1) * UNEVEN_VALUES[matrix.codes].astype(np.float32)
        return result
