"""q3_k (ggml): value = (d * sc) * (q - 4), sc of 6 bits (-32..31) for 16 columns, f16 d for 256.

A block of 110 bytes: 32 bytes of third bits (byte l, bit i: column 32 i + l), 64 bytes of lower bit pairs as in q2_k,
12 bytes of sc + 32, d. Of sc number r the low four bits are in byte r % 8 of the 12 (low half for r < 8, else high),
the upper two in byte 8 + r % 4 at bit 2 (r / 4). In our parts sc is a whole signed byte, and the codes are a field
with their two leading bits and a plane with the last one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..format import F32, U8, FormatSpec, PartSpec, Quantized, register
from ..layout import from_quads, num_groups, num_strips, pack_bits, to_quads, unpack_bits
from .super_scale import dequantize_centred, pack_super_scales, unpack_super_scales


@register
class Q3_K:
    """Codes uint8 0..7; scales: d float16 [rows, cols / 256], sc int8 [rows, cols / 16]."""

    spec = FormatSpec(
        name="q3_k",
        scale_columns=16,
        block_columns=256,
        block_bytes=110,
        parts=(
            PartSpec("superscale", 32, 4),
            PartSpec("subscale", 64),
            PartSpec("field", 256),
            PartSpec("plane1", 128),
        ),
    )

    def decode(self, blocks: U8, cols: int) -> Quantized:
        b = blocks.reshape(-1, 110)
        pairs = b[:, 32:96].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
        third = b[:, :32].reshape(-1, 1, 1, 32) >> np.arange(8, dtype=np.uint8).reshape(1, 2, 4, 1)
        codes = (pairs & 3) | ((third & 1) << 2)  # [blocks, 2, 4, 32]
        packed = b[:, 96:108]
        low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)
        high = np.concatenate([(packed[:, 8:] >> s) & 3 for s in (0, 2, 4, 6)], axis=1)
        sc = (low | (high << 4)).astype(np.int8) - np.int8(32)
        d = np.ascontiguousarray(b[:, 108:]).view(np.float16)
        return Quantized(codes.reshape(-1, cols), (d.reshape(-1, cols // 256), sc.reshape(-1, cols // 16)))

    def pack(self, matrix: Quantized) -> list[U8]:
        quads = to_quads(matrix.codes)
        return [
            *pack_super_scales(matrix),
            pack_bits((quads >> np.uint32(1)) & np.uint32(0x03030303), 2),
            pack_bits(quads & np.uint32(0x01010101), 1),
        ]

    def unpack(self, parts: Sequence[U8], rows: int, cols: int) -> Quantized:
        strips, groups = num_strips(rows), num_groups(cols)
        quads = (unpack_bits(parts[2], 2, strips, groups) << np.uint32(1)) | unpack_bits(parts[3], 1, strips, groups)
        return Quantized(from_quads(quads, rows, cols), unpack_super_scales(parts, rows, cols))

    def dequantize(self, matrix: Quantized) -> F32:
        return dequantize_centred(matrix, 4)
