"""Codes column by column: a record for each column of a matrix, the neuron that feeds it (docs/formats.md, section 2).

Behind an activation that is mostly 0 only the records of the neurons that are not are read. LLM in a flash
(arXiv:2312.11514) bundles what belongs to a neuron in the same way.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from .format import FormatSpec, PartSpec
from .format import part_bytes as format_part_bytes
from .layout import STRIP_ROWS, num_strips

PART_NAME = "neuron"

U8 = NDArray[np.uint8]

_FORMATS = re.compile(r"(?:p[2-8]|c[2-4])")
_BEFORE_CODES = ("scale", "table")
_PIECES = (8, 4, 2, 1)


def code_bits(format_name: str) -> int:
    """Bits of a code of a format whose codes may lie so; 0: they may not."""
    return int(format_name[1:]) if _FORMATS.fullmatch(format_name) else 0


def scale_parts(spec: FormatSpec) -> tuple[PartSpec, ...]:
    """The parts that stay as they are, before the codes."""
    return tuple(part for part in spec.parts if part.name in _BEFORE_CODES)


def record_bytes(bits: int, rows: int) -> int:
    """Bytes of the record of one column."""
    return num_strips(rows) * STRIP_ROWS * bits // 8


def part_bytes(spec: FormatSpec, rows: int, cols: int) -> tuple[int, ...]:
    """Bytes of the parts: those before the codes, and the records."""
    before = format_part_bytes(spec, rows, cols)[: len(scale_parts(spec))]
    return (*before, cols * record_bytes(code_bits(spec.name), rows))


def pack(codes: U8, bits: int) -> U8:
    """Codes of `bits` bits, [rows, cols], the first row a strip's -> [cols, strips, 2 bits] bytes.

    A code is cut into pieces of 8, 4, 2 and 1 bits, the leading bits first. A piece of k bits takes 2 k bytes of a
    strip: bits k t and on of byte i are of row i + 2 k t.
    """
    rows, cols = codes.shape
    strips = num_strips(rows)
    padded = np.zeros((cols, strips * STRIP_ROWS), np.uint8)
    padded[:, :rows] = codes.T
    strip_codes = padded.reshape(cols, strips, STRIP_ROWS)
    pieces, left = [], bits
    for k in _PIECES:
        if not bits & k:
            continue
        left -= k
        piece = (strip_codes >> np.uint8(left)) & np.uint8((1 << k) - 1)
        by_shift = piece.reshape(cols, strips, 8 // k, 2 * k) << np.arange(0, 8, k, dtype=np.uint8)[:, None]
        pieces.append(np.bitwise_or.reduce(by_shift, axis=2))
    return np.concatenate(pieces, axis=2)


def unpack(part: U8, bits: int, rows: int, cols: int) -> U8:
    """The inverse of `pack`, from the flat bytes of the part: codes [rows, cols]."""
    records = part.reshape(cols, num_strips(rows), 2 * bits)
    codes, at = np.zeros((cols, num_strips(rows), STRIP_ROWS), np.uint8), 0
    for k in _PIECES:
        if not bits & k:
            continue
        shifts = np.arange(0, 8, k, dtype=np.uint8)[:, None]
        piece = (records[:, :, None, at : at + 2 * k] >> shifts) & np.uint8((1 << k) - 1)
        codes = (codes << np.uint8(k % 8)) | piece.reshape(codes.shape)
        at += 2 * k
    return np.ascontiguousarray(codes.reshape(cols, -1)[:, :rows].T)
