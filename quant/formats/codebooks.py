"""What c2 to c4 share: value = scale * table[q], a bf16 scale for 64 columns, codes in field and planes.

The tables are int8, one for the tensor and each width: that of b bits lies in bytes 2^b to 2^(b + 1) - 1 of the part
`table`. So the first parts alone are a coarser tensor, which takes the table of its own width and the same scales.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgert.errors import UnsupportedFormatError

from ..format import F32, U8, WHOLE_TENSOR, FormatSpec, PartSpec, Quantized
from .planes import code_part_specs, pack_codes, pack_group_scales, unpack_codes, unpack_group_scales

I8 = NDArray[np.int8]

TABLE_BYTES = 32


@dataclass(frozen=True, slots=True)
class CodebookFormat:
    """Codes uint8 0 .. 2^bits - 1; scales: float32 [rows, groups] with values that bf16 holds, tables int8 [1, 32]."""

    bits: int

    @property
    def spec(self) -> FormatSpec:
        table = PartSpec("table", TABLE_BYTES, WHOLE_TENSOR)
        return FormatSpec(
            name=f"c{self.bits}", scale_columns=64, parts=(PartSpec("scale", 32), table, *code_part_specs(self.bits))
        )

    def decode(self, blocks: U8, cols: int) -> Quantized:
        raise UnsupportedFormatError(f"c{self.bits}: found file blocks, expected parts; this format has no GGUF blocks")

    def pack(self, matrix: Quantized) -> list[U8]:
        scale, tables = matrix.scales
        return [pack_group_scales(scale), tables.view(np.uint8).reshape(-1), *pack_codes(matrix.codes, self.bits)]

    def unpack(self, parts: Sequence[U8], rows: int, cols: int) -> Quantized:
        tables = np.ascontiguousarray(parts[1]).view(np.int8).reshape(1, TABLE_BYTES)
        return Quantized(unpack_codes(parts[2:], rows, cols), (unpack_group_scales(parts[0], rows, cols), tables))

    def dequantize(self, matrix: Quantized) -> F32:
        scale, tables = matrix.scales
        values = table_of(tables, self.bits).astype(np.float32)[matrix.codes]
        result: F32 = np.repeat(scale, 64, axis=1)[:, : matrix.codes.shape[1]] * values
        return result


def table_of(tables: I8, bits: int) -> I8:
    """The table of a width, int8 [2^bits]; a view of the tables."""
    return tables.reshape(-1)[1 << bits : 2 << bits]
