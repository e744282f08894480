"""What q4_k and q5_k (ggml) share: value = (d * sc) * q - (dmin * m), sc and m of 6 bits for 32 columns, f16 d and dmin
for 256.

A block: d, dmin, 12 bytes of sc and m, in q5_k 32 bytes of fifth bits (byte l, bit i: column 32 i + l), 128 bytes of
nibbles (32 bytes for 64 columns: low nibbles are the first 32 of them). In our parts sc and m are whole bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..format import F32, U8, FormatSpec, PartSpec, Quantized
from ..layout import num_groups, pack_scales, to_quads, unpack_scales
from .nibbles import pack_upper_four, unpack_upper_four


@dataclass(frozen=True, slots=True)
class SuperMinFormat:
    """Codes uint8 0 .. 2^bits - 1; scales: d, dmin float16 [rows, cols / 256], sc, m uint8 0..63 [rows, cols / 32]."""

    bits: int  # 4 or 5

    @property
    def spec(self) -> FormatSpec:
        return FormatSpec(
            name=f"q{self.bits}_k",
            scale_columns=32,
            block_columns=256,
            block_bytes=144 + 32 * (self.bits - 4),
            parts=(
                PartSpec("superscale", 64, 4),
                PartSpec("subscale", 32),
                PartSpec("submin", 32),
                PartSpec("nibble", 512),
                *(PartSpec("plane1", 128),) * (self.bits - 4),
            ),
        )

    def decode(self, blocks: U8, cols: int) -> Quantized:
        b = blocks.reshape(-1, cols // 256, self.spec.block_bytes)
        d = np.ascontiguousarray(b[:, :, :4]).view(np.float16)
        low, mid, high = b[:, :, 4:8], b[:, :, 8:12], b[:, :, 12:16]
        sc = np.concatenate([low & 63, (high & 15) | (low >> 6 << 4)], axis=2)
        m = np.concatenate([mid & 63, (high >> 4) | (mid >> 6 << 4)], axis=2)
        qs = b[:, :, -128:].reshape(-1, 4, 32)
        codes = np.stack([qs & 15, qs >> 4], axis=2)  # [blocks, 4, 2, 32]
        if self.bits == 5:
            fifth = b[:, :, 16:48].reshape(-1, 1, 1, 32) >> np.arange(8, dtype=np.uint8).reshape(1, 4, 2, 1)
            codes |= (fifth & 1) << 4
        count = cols // 32
        return Quantized(codes.reshape(-1, cols), (d[:, :, 0], d[:, :, 1], sc.reshape(-1, count), m.reshape(-1, count)))

    def pack(self, matrix: Quantized) -> list[U8]:
        d, dmin, sc, m = matrix.scales
        groups = num_groups(matrix.codes.shape[1])
        both = np.stack([d, dmin], axis=2).reshape(len(d), -1)
        scales = [pack_scales(both, 2, d.shape[1]), pack_scales(sc, 2, groups), pack_scales(m, 2, groups)]
        return scales + pack_upper_four(to_quads(matrix.codes), self.bits)

    def unpack(self, parts: Sequence[U8], rows: int, cols: int) -> Quantized:
        groups, supers = num_groups(cols), cols // 256
        both = unpack_scales(parts[0], np.float16, 2, supers, rows, 2 * supers)
        sc = unpack_scales(parts[1], np.uint8, 2, groups, rows, cols // 32)
        m = unpack_scales(parts[2], np.uint8, 2, groups, rows, cols // 32)
        return Quantized(unpack_upper_four(parts[3:], rows, cols), (both[:, 0::2], both[:, 1::2], sc, m))

    def dequantize(self, matrix: Quantized) -> F32:
        d, dmin, sc, m = matrix.scales
        scale = np.repeat(d.astype(np.float32), 8, axis=1) * sc.astype(np.float32)
        minimum = np.repeat(dmin.astype(np.float32), 8, axis=1) * m.astype(np.float32)
        return np.repeat(scale, 32, axis=1) * matrix.codes.astype(np.float32) - np.repeat(minimum, 32, axis=1)
