"""The registry of weight formats: their parts, their sizes, and the numpy reference of each (formats/)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgert.errors import FileFormatError, UnsupportedFormatError

from .layout import num_groups, num_strips

U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]


WHOLE_TENSOR = 0  # cell_groups of a part that a tensor has once


@dataclass(frozen=True, slots=True)
class PartSpec:
    """A part: `cell_bytes` for each strip and each `cell_groups` groups (4 for the super-scales of k-quants)."""

    name: str
    cell_bytes: int
    cell_groups: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatSpec:
    """What a format is made of. Part order is the order in our files: a prefix is a coarser tensor."""

    name: str
    scale_columns: int  # columns that share a scale (0: float formats)
    block_columns: int = 0  # columns of a block in a GGUF file (0: does not occur there)
    block_bytes: int = 0
    element_bytes: int = 0  # float formats: bytes of a value
    parts: tuple[PartSpec, ...] = ()

    @property
    def is_float(self) -> bool:
        return self.element_bytes > 0

    @property
    def bits(self) -> float:
        """Bits of a weight in our file, scales included, without padding and what a tensor has once."""
        if self.is_float:
            return 8.0 * self.element_bytes
        return sum(8.0 * p.cell_bytes / (16 * 64 * p.cell_groups) for p in self.parts if p.cell_groups != WHOLE_TENSOR)

    @property
    def published_bits(self) -> float:
        """Bits of a weight as the format is published, the measure of rates: of ggml's formats those of a block."""
        return 8.0 * self.block_bytes / self.block_columns if self.block_columns else self.bits


@dataclass(frozen=True, slots=True)
class Quantized:
    """A matrix as codes [rows, cols] and scales (each [rows, n]; which ones, the format says).

    Float formats: `codes` are the values as stored (bf16: uint16), `scales` is empty.
    """

    codes: NDArray[Any]
    scales: tuple[NDArray[Any], ...] = ()


class Format(Protocol):
    """The numpy reference of a format. Written apart from the C++ one, so that tests compare two."""

    @property
    def spec(self) -> FormatSpec: ...
    def decode(self, blocks: U8, cols: int) -> Quantized:
        """Rows as a GGUF or safetensors file holds them: uint8 [rows, row_bytes]."""

    def pack(self, matrix: Quantized) -> list[U8]:
        """The parts, in order, as flat bytes. Float formats: one part, row by row."""

    def unpack(self, parts: Sequence[U8], rows: int, cols: int) -> Quantized:
        """The inverse of `pack`."""

    def dequantize(self, matrix: Quantized) -> F32:
        """float32 [rows, cols], by the unfused expression that every kernel's row look-up follows with ==."""


_FORMATS: dict[str, Format] = {}
Factory = TypeVar("Factory", bound=Callable[[], Format])


def register(factory: Factory) -> Factory:
    """Class or function decorator: puts the format that it makes into the registry."""
    made = factory()
    _FORMATS[made.spec.name] = made
    return factory


def get(name: str) -> Format:
    """The format of that name. Raises UnsupportedFormatError with the known ones."""
    from . import formats  # noqa: F401  fills the registry; here, because formats/ imports this module

    if name not in _FORMATS:
        raise UnsupportedFormatError(f"weight format: found {name!r}, expected one of {', '.join(_FORMATS)}")
    return _FORMATS[name]


def names() -> tuple[str, ...]:
    """All registered formats."""
    get("f32")
    return tuple(_FORMATS)


def part_bytes(spec: FormatSpec, rows: int, cols: int) -> tuple[int, ...]:
    """Bytes of each part of a rows x cols matrix, padding to 16 rows and 64 columns included."""
    if spec.is_float:
        return (rows * cols * spec.element_bytes,)
    strips, groups = num_strips(rows), num_groups(cols)
    return tuple(
        p.cell_bytes if p.cell_groups == WHOLE_TENSOR else strips * math.ceil(groups / p.cell_groups) * p.cell_bytes
        for p in spec.parts
    )


def row_bytes(spec: FormatSpec, cols: int) -> int:
    """Bytes of a row in a source file. Raises FileFormatError if the columns do not fill whole blocks."""
    if spec.is_float:
        return cols * spec.element_bytes
    if not spec.block_columns or cols % spec.block_columns:
        raise FileFormatError(
            f"{spec.name} row: found {cols} columns, expected a multiple of {spec.block_columns or 'a ggml block'}"
        )
    return cols // spec.block_columns * spec.block_bytes
