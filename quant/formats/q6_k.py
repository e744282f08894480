"""q6_k (ggml): value = (d * sc) * (q - 32), int8 sc for 16 columns, f16 d for 256.

A block of 210 bytes: 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 int8 sc, d. For each 128 columns:
byte l of 64 holds columns l and l + 64; byte l of 32 upper ones holds columns l, l + 32, l + 64, l + 96.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..format import F32, U8, FormatSpec, PartSpec, Quantized, register
from ..layout import from_quads, num_groups, num_strips, pack_bits, to_quads, unpack_bits
from .super_scale import dequantize_centred, pack_super_scales, unpack_super_scales


@register
class Q6_K:
    """Codes uint8 0..63; scales: d float16 [rows, cols / 256], sc int8 [rows, cols / 16]."""

    spec = FormatSpec(
        name="q6_k",
        scale_columns=16,
        block_columns=256,
        block_bytes=210,
        parts=(
            PartSpec("superscale", 32, 4),
            PartSpec("subscale", 64),
            PartSpec("nibble", 512),
            PartSpec("field", 256),
        ),
    )

    def decode(self, blocks: U8, cols: int) -> Quantized:
        b = blocks.reshape(-1, 210)
        low = b[:, :128].reshape(-1, 2, 64)
        nibbles = np.concatenate([low & 15, low >> 4], axis=2)  # [blocks, 2, 128]
        high = b[:, 128:192].reshape(-1, 2, 32)
        pairs = np.concatenate([(high >> s) & 3 for s in (0, 2, 4, 6)], axis=2)
        sc = np.ascontiguousarray(b[:, 192:208]).view(np.int8).reshape(-1, cols // 16)
        d = np.ascontiguousarray(b[:, 208:210]).view(np.float16).reshape(-1, cols // 256)
        return Quantized((nibbles | (pairs << 4)).reshape(-1, cols), (d, sc))

    def pack(self, matrix: Quantized) -> list[U8]:
        quads = to_quads(matrix.codes)
        return [
            *pack_super_scales(matrix),
            pack_bits(quads & np.uint32(0x0F0F0F0F), 4),
            pack_bits((quads >> np.uint32(4)) & np.uint32(0x03030303), 2),
        ]

    def unpack(self, parts: Sequence[U8], rows: int, cols: int) -> Quantized:
        strips, groups = num_strips(rows), num_groups(cols)
        quads = unpack_bits(parts[2], 4, strips, groups) | (unpack_bits(parts[3], 2, strips, groups) << np.uint32(4))
        return Quantized(from_quads(quads, rows, cols), unpack_super_scales(parts, rows, cols))

    def dequantize(self, matrix: Quantized) -> F32:
        return dequantize_centred(matrix, 32)
