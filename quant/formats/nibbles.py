"""What q4_0, q4_1, q5_0 and q5_1 (ggml) share: 32 columns with an f16 scale, codes of 4 bits or of 4 and a fifth.

A block is d, then m (the minimum) if there is one, then 4 bytes of fifth bits if there are such, then 16 bytes. Byte j
of these holds column j in its low nibble and column j + 16 in its high one; bit j of the fifth bits (as a 32-bit
number) is the highest bit of column j.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..format import F32, U8, FormatSpec, PartSpec, Quantized
from ..layout import from_quads, num_groups, num_strips, pack_bits, pack_scales, to_quads, unpack_bits, unpack_scales
from .blocks import halves_of_32


@dataclass(frozen=True, slots=True, kw_only=True)
class NibbleFormat:
    """value = d * (q - 2^(bits - 1)), or with a minimum d * q + m.

    Codes uint8 0 .. 2^bits - 1; scales: d, then m if there is one, float16 [rows, cols / 32].
    """

    name: str
    bits: int  # 4 or 5
    has_minimum: bool

    @property
    def spec(self) -> FormatSpec:
        minimum = (PartSpec("minimum", 64),) * self.has_minimum
        plane = (PartSpec("plane1", 128),) * (self.bits - 4)
        return FormatSpec(
            name=self.name,
            scale_columns=32,
            block_columns=32,
            block_bytes=2 + 2 * self.has_minimum + 4 * (self.bits - 4) + 16,
            parts=(PartSpec("scale", 64), *minimum, PartSpec("nibble", 512), *plane),
        )

    def decode(self, blocks: U8, cols: int) -> Quantized:
        b = blocks.reshape(-1, cols // 32, self.spec.block_bytes)
        codes = halves_of_32(b[:, :, -16:])
        if self.bits == 5:
            codes |= np.unpackbits(b[:, :, -20:-16], axis=2, bitorder="little") << 4
        count = 1 + self.has_minimum
        numbers = np.ascontiguousarray(b[:, :, : 2 * count]).view(np.float16)
        return Quantized(codes.reshape(-1, cols), tuple(numbers[:, :, i] for i in range(count)))

    def pack(self, matrix: Quantized) -> list[U8]:
        quads, cells = to_quads(matrix.codes), num_groups(matrix.codes.shape[1])
        scales = [pack_scales(numbers, 2, cells) for numbers in matrix.scales]
        return scales + pack_upper_four(quads, self.bits)

    def unpack(self, parts: Sequence[U8], rows: int, cols: int) -> Quantized:
        groups, count = num_groups(cols), 1 + self.has_minimum
        scales = [unpack_scales(part, np.float16, 2, groups, rows, cols // 32) for part in parts[:count]]
        return Quantized(unpack_upper_four(parts[count:], rows, cols), tuple(scales))

    def dequantize(self, matrix: Quantized) -> F32:
        step, *minimum = (np.repeat(numbers.astype(np.float32), 32, axis=1) for numbers in matrix.scales)
        codes = matrix.codes.astype(np.float32)
        result: F32 = step * codes + minimum[0] if minimum else step * (codes - np.float32(1 << (self.bits - 1)))
        return result


def pack_upper_four(quads: np.ndarray, bits: int) -> list[U8]:
    """Codes of 4 or 5 bits: the upper four as nibbles, then the last bit as a plane if there is one."""
    nibble = pack_bits((quads >> np.uint32(bits - 4)) & np.uint32(0x0F0F0F0F), 4)
    return [nibble] if bits == 4 else [nibble, pack_bits(quads & np.uint32(0x01010101), 1)]


def unpack_upper_four(parts: Sequence[U8], rows: int, cols: int) -> U8:
    """The inverse of `pack_upper_four`: codes [rows, cols]."""
    strips, groups = num_strips(rows), num_groups(cols)
    quads = unpack_bits(parts[0], 4, strips, groups)
    for plane in parts[1:]:
        quads = (quads << np.uint32(1)) | unpack_bits(plane, 1, strips, groups)
    return from_quads(quads, rows, cols)
