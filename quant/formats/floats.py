"""What f32, f16 and bf16 share: values row by row, in one part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..format import F32, U8, FormatSpec, PartSpec, Quantized


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """`dtype` is how numpy stores a value; `widen` gives its float32."""

    name: str
    dtype: type[np.generic]
    widen: Callable[[NDArray[Any]], F32]

    @property
    def spec(self) -> FormatSpec:
        size = np.dtype(self.dtype).itemsize
        return FormatSpec(name=self.name, scale_columns=0, element_bytes=size, parts=(PartSpec("values", 0),))

    def decode(self, blocks: U8, cols: int) -> Quantized:
        return Quantized(np.ascontiguousarray(blocks).view(self.dtype).reshape(-1, cols))

    def pack(self, matrix: Quantized) -> list[U8]:
        return [np.ascontiguousarray(matrix.codes).view(np.uint8).reshape(-1)]

    def unpack(self, parts: Sequence[U8], rows: int, cols: int) -> Quantized:
        return Quantized(np.ascontiguousarray(parts[0]).view(self.dtype).reshape(rows, cols))

    def dequantize(self, matrix: Quantized) -> F32:
        return self.widen(matrix.codes)
