"""iq4_xs (ggml): value = (d * sc) * table[q], the table of iq4_nl, sc -32..31 for 32 columns, f16 d for 256.

A block of 136 bytes: d, a uint16 with the upper two bits of sc + 32 (run r at bit 2 r), 4 bytes with the lower four
(run r in a half of byte r / 2), 128 bytes of nibbles (16 bytes for 32 columns). In our parts sc is a whole signed byte.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..format import F32, U8, FormatSpec, PartSpec, Quantized, register
from ..layout import from_quads, num_groups, num_strips, pack_bits, pack_scales, to_quads, unpack_bits, unpack_scales
from .blocks import UNEVEN_VALUES, halves_of_32


@register
class IQ4_XS:
    """Codes uint8 0..15; scales: d float16 [rows, cols / 256], sc int8 [rows, cols / 32]."""

    spec = FormatSpec(
        name="iq4_xs",
        scale_columns=32,
        block_columns=256,
        block_bytes=136,
        parts=(PartSpec("superscale", 32, 4), PartSpec("subscale", 32), PartSpec("nibble", 512)),
    )

    def decode(self, blocks: U8, cols: int) -> Quantized:
        b = blocks.reshape(-1, 136)
        d = np.ascontiguousarray(b[:, :2]).view(np.float16).reshape(-1, cols // 256)
        high = np.ascontiguousarray(b[:, 2:4]).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16)
        low = np.stack([b[:, 4:8] & 15, b[:, 4:8] >> 4], axis=2).reshape(-1, 8)
        sc = (low | ((high & 3).astype(np.uint8) << 4)).astype(np.int8) - np.int8(32)
        codes = halves_of_32(b[:, 8:].reshape(-1, 8, 16))
        return Quantized(codes.reshape(-1, cols), (d, sc.reshape(-1, cols // 32)))

    def pack(self, matrix: Quantized) -> list[U8]:
        d, sc = matrix.scales
        return [
            pack_scales(d, 1, d.shape[1]),
            pack_scales(sc, 2, num_groups(matrix.codes.shape[1])),
            pack_bits(to_quads(matrix.codes), 4),
        ]

    def unpack(self, parts: Sequence[U8], rows: int, cols: int) -> Quantized:
        groups, supers = num_groups(cols), cols // 256
        d = unpack_scales(parts[0], np.float16, 1, supers, rows, supers)
        sc = unpack_scales(parts[1], np.int8, 2, groups, rows, cols // 32)
        return Quantized(from_quads(unpack_bits(parts[2], 4, num_strips(rows), groups), rows, cols), (d, sc))

    def dequantize(self, matrix: Quantized) -> F32:
        d, sc = matrix.scales
        scale = np.repeat(d.astype(np.float32), 8, axis=1) * sc.astype(np.float32)
        result: F32 = np.repeat(scale, 32, axis=1) * UNEVEN_VALUES[matrix.codes].astype(np.float32)
        return result
