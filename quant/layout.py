"""The 16-row strip layout: codes and scales of a matrix <-> the bytes of its parts (docs/formats.md).

A matrix is cut into strips of 16 rows and groups of 64 columns. A vector of 64 bytes holds 16 rows x 4 neighbouring
columns (a quad): 32-bit lane r belongs to row r. 16 quads make a group. Rows and columns are padded with zeros.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Scale = TypeVar("Scale", bound=np.generic)
U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]

STRIP_ROWS = 16
GROUP_COLUMNS = 64
QUADS = 16  # quads in a group


def num_strips(rows: int) -> int:
    return -(-rows // STRIP_ROWS)


def num_groups(cols: int) -> int:
    return -(-cols // GROUP_COLUMNS)


def to_quads(codes: U8) -> U32:
    """Codes [rows, cols] -> quads [strips, groups, 16 quads, 16 rows]; each uint32 is 4 neighbouring columns."""
    rows, cols = codes.shape
    strips, groups = num_strips(rows), num_groups(cols)
    padded = codes
    if rows % STRIP_ROWS or cols % GROUP_COLUMNS or not codes.flags.c_contiguous:
        padded = np.zeros((strips * STRIP_ROWS, groups * GROUP_COLUMNS), np.uint8)
        padded[:rows, :cols] = codes
    words = padded.view(np.uint32).reshape(strips, STRIP_ROWS, groups * QUADS)
    return np.ascontiguousarray(words.transpose(0, 2, 1)).reshape(strips, groups, QUADS, STRIP_ROWS)


def from_quads(quads: U32, rows: int, cols: int) -> U8:
    """The inverse of `to_quads`, without the padding."""
    strips, groups = quads.shape[:2]
    words = quads.reshape(strips, groups * QUADS, STRIP_ROWS).transpose(0, 2, 1)
    codes = np.ascontiguousarray(words).view(np.uint8).reshape(strips * STRIP_ROWS, groups * GROUP_COLUMNS)
    return np.ascontiguousarray(codes[:rows, :cols])


def pack_bits(quads: U32, bits: int) -> U8:
    """Packs codes of `bits` bits (1 plane, 2 field, 4 nibble, 8 byte): vector z holds quads z * 8 / bits and on.

    The first quad lies in the lowest bits of each byte.
    """
    per_vector = 8 // bits
    strips, groups = quads.shape[:2]
    split = quads.reshape(strips, groups, QUADS // per_vector, per_vector, STRIP_ROWS)
    packed = split[:, :, :, 0].copy()
    for i in range(1, per_vector):
        packed |= split[:, :, :, i] << np.uint32(i * bits)
    part: U8 = packed.view(np.uint8).reshape(-1)
    return part


def unpack_bits(part: U8, bits: int, strips: int, groups: int) -> U32:
    """The inverse of `pack_bits`: quads [strips, groups, 16, 16]."""
    per_vector = 8 // bits
    vectors = np.ascontiguousarray(part).view(np.uint32).reshape(strips, groups, QUADS // per_vector, 1, STRIP_ROWS)
    shifts = (np.arange(per_vector, dtype=np.uint32) * np.uint32(bits)).reshape(1, 1, 1, per_vector, 1)
    mask = np.uint32(((1 << bits) - 1) * 0x01010101)
    quads: U32 = ((vectors >> shifts) & mask).reshape(strips, groups, QUADS, STRIP_ROWS)
    return quads


def pack_quad_bits(quads: U32) -> U8:
    """Packs codes of one bit as indices of four columns: vector z, lane j of 16 bytes, byte r belongs to row r.

    Its low half is quad 8 z + j, its high half quad 8 z + 4 + j; bit c is column c of the quad.
    """
    strips, groups = quads.shape[:2]
    bits = np.ascontiguousarray(quads).view(np.uint8).reshape(strips, groups, 2, 2, 4, STRIP_ROWS, 4)
    index = (bits << np.arange(4, dtype=np.uint8)).sum(axis=-1, dtype=np.uint8)  # [strips, groups, z, half, j, rows]
    part: U8 = (index[:, :, :, 0] | (index[:, :, :, 1] << np.uint8(4))).reshape(-1)
    return part


def unpack_quad_bits(part: U8, strips: int, groups: int) -> U32:
    """The inverse of `pack_quad_bits`: quads [strips, groups, 16, 16]."""
    both = np.ascontiguousarray(part).reshape(strips, groups, 2, 1, 4, STRIP_ROWS, 1)
    shifts = (4 * np.arange(2).reshape(2, 1, 1, 1) + np.arange(4)).astype(np.uint8)  # [half, 1, 1, column]
    bits = (both >> shifts) & np.uint8(1)
    quads: U32 = np.ascontiguousarray(bits).view(np.uint32).reshape(strips, groups, QUADS, STRIP_ROWS)
    return quads


def pack_scales(scales: NDArray[Scale], per_cell: int, cells: int) -> U8:
    """Scales [rows, n] -> [strips, cells, per_cell, 16 rows]: a cell is a group, or 4 groups for super-scales."""
    rows, count = scales.shape
    strips = num_strips(rows)
    padded = np.zeros((strips * STRIP_ROWS, cells * per_cell), scales.dtype)
    padded[:rows, :count] = scales
    lanes = padded.reshape(strips, STRIP_ROWS, cells, per_cell).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(lanes).view(np.uint8).reshape(-1)


def unpack_scales(part: U8, dtype: type[Scale], per_cell: int, cells: int, rows: int, count: int) -> NDArray[Scale]:
    """The inverse of `pack_scales`: [rows, count]."""
    lanes = np.ascontiguousarray(part).view(dtype).reshape(num_strips(rows), cells, per_cell, STRIP_ROWS)
    flat = lanes.transpose(0, 3, 1, 2).reshape(-1, cells * per_cell)
    return np.ascontiguousarray(flat[:rows, :count])
