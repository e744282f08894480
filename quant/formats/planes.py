"""What p2, p3 and p4 share: value = scale * (2 q + 1 - 2^b), a bf16 scale for 64 columns, codes in field and planes.

The field holds the two leading bits of a code, each plane the next bit: the first parts alone are a coarser tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgert.errors import UnsupportedFormatError

from ..float_bits import bf16_to_float32, float32_to_bf16
from ..format import F32, U8, FormatSpec, PartSpec, Quantized
from ..layout import from_quads, num_groups, num_strips, pack_bits, pack_scales, to_quads, unpack_bits, unpack_scales


@dataclass(frozen=True, slots=True)
class PlaneFormat:
    """Codes uint8 0 .. 2^bits - 1; scales: one float32 [rows, groups] with values that bf16 holds."""

    bits: int

    @property
    def spec(self) -> FormatSpec:
        planes = tuple(PartSpec(f"plane{i}", 128) for i in range(1, self.bits - 1))
        return FormatSpec(
            name=f"p{self.bits}", scale_columns=64, parts=(PartSpec("scale", 32), PartSpec("field", 256), *planes)
        )

    def decode(self, blocks: U8, cols: int) -> Quantized:
        raise UnsupportedFormatError(f"p{self.bits}: found file blocks, expected parts; this format has no GGUF blocks")

    def pack(self, matrix: Quantized) -> list[U8]:
        (scale,) = matrix.scales
        quads = to_quads(matrix.codes)
        field = (quads >> np.uint32(self.bits - 2)) & np.uint32(0x03030303)
        parts = [pack_scales(float32_to_bf16(scale), 1, scale.shape[1]), pack_bits(field, 2)]
        for shift in range(self.bits - 3, -1, -1):
            parts.append(pack_bits((quads >> np.uint32(shift)) & np.uint32(0x01010101), 1))
        return parts

    def unpack(self, parts: Sequence[U8], rows: int, cols: int) -> Quantized:
        strips, groups = num_strips(rows), num_groups(cols)
        scale = bf16_to_float32(unpack_scales(parts[0], np.uint16, 1, groups, rows, groups))
        quads = unpack_bits(parts[1], 2, strips, groups)
        for plane in parts[2:]:
            quads = (quads << np.uint32(1)) | unpack_bits(plane, 1, strips, groups)
        return Quantized(from_quads(quads, rows, cols), (scale,))

    def dequantize(self, matrix: Quantized) -> F32:
        (scale,) = matrix.scales
        cols = matrix.codes.shape[1]
        centred = (2 * matrix.codes.astype(np.int32) + 1 - (1 << self.bits)).astype(np.float32)
        return np.repeat(scale, 64, axis=1)[:, :cols] * centred
