"""tq1_0 (ggml): value = d * (q - 1), q 0..2, five in a byte, 256 columns share the f16 d.

Five codes a, b, c, d, e are the number v = 81 a + 27 b + 9 c + 3 d + e below 243, and a byte holds 256 v / 243 rounded
up, so that the digits of byte / 256 in base 3 are the codes again.

A block of 54 bytes: 48 with five codes each (digit i of byte l of the first 32: column 32 i + l; of the other 16:
column 160 + 16 i + l), 4 with four (digit i of byte l: column 240 + 4 i + l), then d.

Our part has 13 vectors for four groups. Vectors 3 g + z, z = 0..2, are quads 5 z to 5 z + 4 of group g, a digit each;
the last one has the sixteenth quads, that of group g in bits 2 g and 2 g + 1 of every byte.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..format import F32, U8, FormatSpec, PartSpec, Quantized, register
from ..layout import from_quads, num_groups, num_strips, pack_scales, to_quads, unpack_scales
from .blocks import trits
from .tq2_0 import dequantize_ternary


@register
class TQ1_0:
    """Codes uint8 0..2; scales: d float16 [rows, cols / 256]."""

    spec = FormatSpec(
        name="tq1_0",
        scale_columns=256,
        block_columns=256,
        block_bytes=54,
        parts=(PartSpec("superscale", 32, 4), PartSpec("trit", 832, 4)),
    )

    def decode(self, blocks: U8, cols: int) -> Quantized:
        b = blocks.reshape(-1, 54)
        runs = [trits(b[:, :32], 5), trits(b[:, 32:48], 5), trits(b[:, 48:52], 4)]
        codes = np.concatenate([run.reshape(len(b), -1) for run in runs], axis=1)
        d = np.ascontiguousarray(b[:, 52:]).view(np.float16)
        return Quantized(codes.reshape(-1, cols), (d.reshape(-1, cols // 256),))

    def pack(self, matrix: Quantized) -> list[U8]:
        (d,) = matrix.scales
        quads = to_quads(matrix.codes)
        codes = quads.view(np.uint8).reshape(len(quads), -1, 4, 16, 64)  # [strips, blocks, groups, quads, bytes]
        fives = codes[:, :, :, :15].reshape(*codes.shape[:3], 3, 5, 64)
        numbers = np.einsum("sbgzij,i->sbgzj", fives.astype(np.uint16), np.array([81, 27, 9, 3, 1], np.uint16))
        vectors = ((numbers * 256 + 242) // 243).astype(np.uint8).reshape(*codes.shape[:2], 12, 64)
        last = np.zeros((*codes.shape[:2], 1, 64), np.uint8)
        for group in range(4):
            last[:, :, 0] |= codes[:, :, group, 15] << np.uint8(2 * group)
        return [pack_scales(d, 1, d.shape[1]), np.concatenate([vectors, last], axis=2).reshape(-1)]

    def unpack(self, parts: Sequence[U8], rows: int, cols: int) -> Quantized:
        strips, groups = num_strips(rows), num_groups(cols)
        d = unpack_scales(parts[0], np.float16, 1, cols // 256, rows, cols // 256)
        vectors = np.ascontiguousarray(parts[1]).reshape(strips, -1, 13, 64)
        codes = np.empty((strips, groups // 4, 4, 16, 64), np.uint8)
        codes[:, :, :, :15] = trits(vectors[:, :, :12].reshape(strips, -1, 4, 3, 64), 5).reshape(strips, -1, 4, 15, 64)
        for group in range(4):
            codes[:, :, group, 15] = (vectors[:, :, 12] >> np.uint8(2 * group)) & 3
        quads = codes.reshape(strips, groups, -1).view(np.uint32).reshape(strips, groups, 16, 16)
        return Quantized(from_quads(quads, rows, cols), (d,))

    def dequantize(self, matrix: Quantized) -> F32:
        return dequantize_ternary(matrix)
