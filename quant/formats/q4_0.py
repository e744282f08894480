"""q4_0 (ggml): value = d * (q - 8), 32 columns share the f16 d; a block is d, then 16 bytes.

Byte j of a block holds column j in its low nibble and column j + 16 in its high one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..format import F32, U8, FormatSpec, PartSpec, Quantized, register
from ..layout import from_quads, num_groups, num_strips, pack_bits, pack_scales, to_quads, unpack_bits, unpack_scales


@register
class Q4_0:
    """Codes uint8 0..15; scales: d float16 [rows, cols / 32]."""

    spec = FormatSpec(
        name="q4_0",
        scale_columns=32,
        block_columns=32,
        block_bytes=18,
        parts=(PartSpec("scale", 64), PartSpec("nibble", 512)),
    )

    def decode(self, blocks: U8, cols: int) -> Quantized:
        b = blocks.reshape(-1, cols // 32, 18)
        d = np.ascontiguousarray(b[:, :, :2]).view(np.float16)[:, :, 0]
        codes = np.concatenate([b[:, :, 2:] & 15, b[:, :, 2:] >> 4], axis=2)
        return Quantized(codes.reshape(-1, cols), (d,))

    def pack(self, matrix: Quantized) -> list[U8]:
        (d,) = matrix.scales
        cells = num_groups(matrix.codes.shape[1])
        return [pack_scales(d, 2, cells), pack_bits(to_quads(matrix.codes), 4)]

    def unpack(self, parts: Sequence[U8], rows: int, cols: int) -> Quantized:
        groups = num_groups(cols)
        d = unpack_scales(parts[0], np.float16, 2, groups, rows, cols // 32)
        return Quantized(from_quads(unpack_bits(parts[1], 4, num_strips(rows), groups), rows, cols), (d,))

    def dequantize(self, matrix: Quantized) -> F32:
        (d,) = matrix.scales
        result: F32 = np.repeat(d.astype(np.float32), 32, axis=1) * (matrix.codes.astype(np.float32) - np.float32(8))
        return result
