"""q8_0 (ggml): value = d * q, 32 columns share the f16 d; a block is d, then 32 int8."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..format import F32, U8, FormatSpec, PartSpec, Quantized, register
from ..layout import from_quads, num_groups, num_strips, pack_bits, pack_scales, to_quads, unpack_bits, unpack_scales


@register
class Q8_0:
    """Codes int8; scales: d float16 [rows, cols / 32]."""

    spec = FormatSpec(
        name="q8_0",
        scale_columns=32,
        block_columns=32,
        block_bytes=34,
        parts=(PartSpec("scale", 64), PartSpec("byte", 1024)),
    )

    def decode(self, blocks: U8, cols: int) -> Quantized:
        b = blocks.reshape(-1, cols // 32, 34)
        d = np.ascontiguousarray(b[:, :, :2]).view(np.float16)[:, :, 0]
        return Quantized(np.ascontiguousarray(b[:, :, 2:]).view(np.int8).reshape(-1, cols), (d,))

    def pack(self, matrix: Quantized) -> list[U8]:
        (d,) = matrix.scales
        cells = num_groups(matrix.codes.shape[1])
        return [pack_scales(d, 2, cells), pack_bits(to_quads(matrix.codes.view(np.uint8)), 8)]

    def unpack(self, parts: Sequence[U8], rows: int, cols: int) -> Quantized:
        groups = num_groups(cols)
        d = unpack_scales(parts[0], np.float16, 2, groups, rows, cols // 32)
        codes = from_quads(unpack_bits(parts[1], 8, num_strips(rows), groups), rows, cols)
        return Quantized(codes.view(np.int8), (d,))

    def dequantize(self, matrix: Quantized) -> F32:
        (d,) = matrix.scales
        return np.repeat(d.astype(np.float32), 32, axis=1) * matrix.codes.astype(np.float32)
