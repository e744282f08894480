"""What p1 to p7 share: value = scale * (2 q + 1 - 2^b), a bf16 scale for 64 columns, codes in field and planes.

The field holds the two leading bits of a code, each plane the next bit: the first parts alone are a coarser tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgert.errors import UnsupportedFormatError

from ..float_bits import bf16_to_float32, float32_to_bf16
from ..format import F32, U8, FormatSpec, PartSpec, Quantized
from ..layout import (
    from_quads,
    num_groups,
    num_strips,
    pack_bits,
    pack_quad_bits,
    pack_scales,
    to_quads,
    unpack_bits,
    unpack_quad_bits,
    unpack_scales,
)


@dataclass(frozen=True, slots=True)
class PlaneFormat:
    """Codes uint8 0 .. 2^bits - 1; scales: one float32 [rows, groups] with values that bf16 holds."""

    bits: int

    @property
    def spec(self) -> FormatSpec:
        return FormatSpec(
            name=f"p{self.bits}", scale_columns=64, parts=(PartSpec("scale", 32), *code_part_specs(self.bits))
        )

    def decode(self, blocks: U8, cols: int) -> Quantized:
        raise UnsupportedFormatError(f"p{self.bits}: found file blocks, expected parts; this format has no GGUF blocks")

    def pack(self, matrix: Quantized) -> list[U8]:
        (scale,) = matrix.scales
        return [pack_group_scales(scale), *pack_codes(matrix.codes, self.bits)]

    def unpack(self, parts: Sequence[U8], rows: int, cols: int) -> Quantized:
        return Quantized(unpack_codes(parts[1:], rows, cols), (unpack_group_scales(parts[0], rows, cols),))

    def dequantize(self, matrix: Quantized) -> F32:
        (scale,) = matrix.scales
        cols = matrix.codes.shape[1]
        grid = (2 * matrix.codes.astype(np.int32) + 1 - (1 << self.bits)).astype(np.float32)
        return np.repeat(scale, 64, axis=1)[:, :cols] * grid


def code_part_specs(bits: int) -> tuple[PartSpec, ...]:
    """The parts of codes that nest: a field and planes; of one bit: its plane, which is no view of anything."""
    if bits == 1:
        return (PartSpec("bits", 128),)
    return (PartSpec("field", 256), *(PartSpec(f"plane{i}", 128) for i in range(1, bits - 1)))


def pack_codes(codes: U8, bits: int) -> list[U8]:
    """Codes uint8 [rows, cols] -> the parts of `code_part_specs`."""
    quads = to_quads(codes)
    if bits == 1:
        return [pack_quad_bits(quads)]
    field = (quads >> np.uint32(bits - 2)) & np.uint32(0x03030303)
    planes = ((quads >> np.uint32(shift)) & np.uint32(0x01010101) for shift in range(bits - 3, -1, -1))
    return [pack_bits(field, 2), *(pack_bits(plane, 1) for plane in planes)]


def unpack_codes(parts: Sequence[U8], rows: int, cols: int) -> U8:
    """The inverse of `pack_codes`; how many bits the first part has follows from its length."""
    strips, groups = num_strips(rows), num_groups(cols)
    bits = len(parts[0]) // (strips * groups * 128)
    quads = unpack_quad_bits(parts[0], strips, groups) if bits == 1 else unpack_bits(parts[0], bits, strips, groups)
    for plane in parts[1:]:
        quads = (quads << np.uint32(1)) | unpack_bits(plane, 1, strips, groups)
    return from_quads(quads, rows, cols)


def pack_group_scales(scale: F32) -> U8:
    """Scales [rows, groups] that bf16 holds -> the part."""
    return pack_scales(float32_to_bf16(scale), 1, scale.shape[1])


def unpack_group_scales(part: U8, rows: int, cols: int) -> F32:
    """The inverse of `pack_group_scales`."""
    groups = num_groups(cols)
    return bf16_to_float32(unpack_scales(part, np.uint16, 1, groups, rows, groups))
