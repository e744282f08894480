"""tq2_0 (ggml): value = d * (q - 1), q 0..2 in two bits, 256 columns share the f16 d.

A block of 66 bytes: 64 bytes of codes as in q2_k, then d. Two bits can hold 3 as well, which stands for 2 d.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..format import F32, U8, FormatSpec, PartSpec, Quantized, register
from ..layout import from_quads, num_groups, num_strips, pack_bits, pack_scales, to_quads, unpack_bits, unpack_scales
from .blocks import pairs_of_128


@register
class TQ2_0:
    """Codes uint8 0..3; scales: d float16 [rows, cols / 256]."""

    spec = FormatSpec(
        name="tq2_0",
        scale_columns=256,
        block_columns=256,
        block_bytes=66,
        parts=(PartSpec("superscale", 32, 4), PartSpec("field", 256)),
    )

    def decode(self, blocks: U8, cols: int) -> Quantized:
        b = blocks.reshape(-1, 66)
        d = np.ascontiguousarray(b[:, 64:]).view(np.float16).reshape(-1, cols // 256)
        return Quantized(pairs_of_128(b[:, :64].reshape(-1, 2, 32)).reshape(-1, cols), (d,))

    def pack(self, matrix: Quantized) -> list[U8]:
        (d,) = matrix.scales
        return [pack_scales(d, 1, d.shape[1]), pack_bits(to_quads(matrix.codes), 2)]

    def unpack(self, parts: Sequence[U8], rows: int, cols: int) -> Quantized:
        d = unpack_scales(parts[0], np.float16, 1, cols // 256, rows, cols // 256)
        codes = from_quads(unpack_bits(parts[1], 2, num_strips(rows), num_groups(cols)), rows, cols)
        return Quantized(codes, (d,))

    def dequantize(self, matrix: Quantized) -> F32:
        return dequantize_ternary(matrix)


def dequantize_ternary(matrix: Quantized) -> F32:
    """d * (q - 1), float32 [rows, cols]."""
    (d,) = matrix.scales
    result: F32 = np.repeat(d.astype(np.float32), 256, axis=1) * (matrix.codes.astype(np.float32) - np.float32(1))
    return result
