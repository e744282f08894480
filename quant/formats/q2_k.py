"""q2_k (ggml): value = (d * sc) * q - (dmin * m), sc and m of 4 bits for 16 columns, f16 d and dmin for 256.

A block of 84 bytes: 16 bytes with sc in the low and m in the high half, 64 bytes of codes, d, dmin. For each 128
columns: byte l of 32 holds columns l, l + 32, l + 64, l + 96 in its four bit pairs. Our parts keep sc and m in a byte.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..format import F32, U8, FormatSpec, PartSpec, Quantized, register
from ..layout import from_quads, num_groups, num_strips, pack_bits, pack_scales, to_quads, unpack_bits, unpack_scales
from .blocks import pairs_of_128


@register
class Q2_K:
    """Codes uint8 0..3; scales: d, dmin float16 [rows, cols / 256], sc, m uint8 0..15 [rows, cols / 16]."""

    spec = FormatSpec(
        name="q2_k",
        scale_columns=16,
        block_columns=256,
        block_bytes=84,
        parts=(PartSpec("superscale", 64, 4), PartSpec("subscale", 64), PartSpec("field", 256)),
    )

    def decode(self, blocks: U8, cols: int) -> Quantized:
        b = blocks.reshape(-1, cols // 256, 84)
        sub = b[:, :, :16].reshape(-1, cols // 16)
        codes = pairs_of_128(b[:, :, 16:80].reshape(-1, 2, 32))
        d = np.ascontiguousarray(b[:, :, 80:]).view(np.float16)
        return Quantized(codes.reshape(-1, cols), (d[:, :, 0], d[:, :, 1], sub & 15, sub >> 4))

    def pack(self, matrix: Quantized) -> list[U8]:
        d, dmin, sc, m = matrix.scales
        both = np.stack([d, dmin], axis=2).reshape(len(d), -1)
        return [
            pack_scales(both, 2, d.shape[1]),
            pack_scales(sc | (m << 4), 4, num_groups(matrix.codes.shape[1])),
            pack_bits(to_quads(matrix.codes), 2),
        ]

    def unpack(self, parts: Sequence[U8], rows: int, cols: int) -> Quantized:
        groups, supers = num_groups(cols), cols // 256
        both = unpack_scales(parts[0], np.float16, 2, supers, rows, 2 * supers)
        sub = unpack_scales(parts[1], np.uint8, 4, groups, rows, cols // 16)
        codes = from_quads(unpack_bits(parts[2], 2, num_strips(rows), groups), rows, cols)
        return Quantized(codes, (both[:, 0::2], both[:, 1::2], sub & 15, sub >> 4))

    def dequantize(self, matrix: Quantized) -> F32:
        d, dmin, sc, m = matrix.scales
        scale = np.repeat(d.astype(np.float32), 16, axis=1) * sc.astype(np.float32)
        minimum = np.repeat(dmin.astype(np.float32), 16, axis=1) * m.astype(np.float32)
        return np.repeat(scale, 16, axis=1) * matrix.codes.astype(np.float32) - np.repeat(minimum, 16, axis=1)
