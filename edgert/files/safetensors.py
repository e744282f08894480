"""safetensors: the header of a file, read without trusting it (specification: the safetensors README)."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgert.config import shown
from edgert.errors import FileFormatError, UnsupportedFormatError
from edgert.files.checkpoint import TensorEntry
from edgert.files.opening import open_binary, parse_json, read_exactly, truncated
from edgert.files.tensor_types import SAFETENSORS_TYPES

MAX_HEADER_BYTES = 100_000_000
# A header larger than this takes a file in proportion: nothing is allocated beyond what the file can hold.
FREE_HEADER_BYTES = 8 << 20
HEADER_SHARE = 8
MAX_DIMENSIONS = 8


@dataclass(frozen=True, slots=True)
class SafetensorsHeader:
    """A file's tensors in the order of the header, with offsets in the file, its free metadata, and its size."""

    tensors: dict[str, TensorEntry]
    metadata: dict[str, str]
    file_bytes: int


def is_safetensors(start: bytes) -> bool:
    """Whether a file that begins with `start` (9 bytes or more) looks like safetensors: a length, then JSON."""
    return len(start) > 8 and start[8:9] == b"{" and 2 <= struct.unpack_from("<Q", start)[0] <= MAX_HEADER_BYTES


def read_safetensors(path: Path, file_index: int = 0) -> SafetensorsHeader:
    """Reads the header of one file. `file_index` goes into the entries.

    Raises FileFormatError if the file breaks a rule, UnsupportedFormatError for an unknown dtype.
    """
    with open_binary(path) as (file, file_bytes):
        if file_bytes < 9:
            raise FileFormatError(f"{path}: found {file_bytes} bytes, expected a safetensors file; download it again")
        length = struct.unpack("<Q", read_exactly(file, path, 0, 8))[0]
        if not 2 <= length <= MAX_HEADER_BYTES:
            raise FileFormatError(
                f"{path}: header length at byte 0: found {length}, expected 2 to {MAX_HEADER_BYTES}; "
                "this is no safetensors file"
            )
        if length > file_bytes - 8:
            raise truncated(path, file_bytes, 8 + length)
        if length > FREE_HEADER_BYTES + file_bytes // HEADER_SHARE:
            raise FileFormatError(
                f"{path}: header length at byte 0: found {length}, "
                f"expected at most {FREE_HEADER_BYTES + file_bytes // HEADER_SHARE} in a file of {file_bytes} bytes; "
                "this is no model"
            )
        header = parse_json(read_exactly(file, path, 8, length), f"{path}: header", file_bytes=file_bytes)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise FileFormatError(
            f"{path}: __metadata__: found {shown(metadata)}, expected an object of strings; the file is damaged"
        )
    data_start = 8 + length
    tensors = {name: _entry(path, name, value, file_index, data_start) for name, value in header.items()}
    _check_ranges(path, list(tensors.values()), data_start, file_bytes)
    return SafetensorsHeader(tensors, metadata, file_bytes)


def _entry(path: Path, name: str, value: Any, file_index: int, data_start: int) -> TensorEntry:
    what = f"{path}: tensor {name[:120]!r}"
    if not isinstance(value, dict) or not value.keys() >= {"dtype", "shape", "data_offsets"}:
        raise FileFormatError(
            f"{what}: found {shown(value)}, expected an object with dtype, shape and data_offsets; the file is damaged"
        )
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in SAFETENSORS_TYPES:
        raise UnsupportedFormatError(f"{what}: found dtype {shown(dtype)}, expected a known one; convert the model")
    if not _are_sizes(shape) or len(shape) > MAX_DIMENSIONS:
        raise FileFormatError(
            f"{what}: found shape {shown(shape)}, expected up to {MAX_DIMENSIONS} sizes below 2^48; the file is damaged"
        )
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise FileFormatError(
            f"{what}: found data_offsets {shown(offsets)}, expected [begin, end]; the file is damaged"
        )
    format_name, bits = SAFETENSORS_TYPES[dtype]
    num_bits = math.prod(shape) * bits
    if num_bits != (offsets[1] - offsets[0]) * 8:
        raise FileFormatError(
            f"{what}: found {offsets[1] - offsets[0]} bytes, expected {num_bits / 8:g} for {dtype} of shape {shape}; "
            "the file is damaged"
        )
    return TensorEntry(name, format_name, tuple(shape), file_index, data_start + offsets[0], offsets[1] - offsets[0])


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**48 for value in values)


def _check_ranges(path: Path, tensors: list[TensorEntry], data_start: int, file_bytes: int) -> None:
    """Tensors follow each other without holes or overlaps, from the header to the end of the file."""
    position, previous = data_start, "the header"
    for entry in sorted(tensors, key=lambda entry: (entry.offset, entry.length)):
        if entry.offset != position:
            kind = "a hole" if entry.offset > position else "an overlap"
            raise FileFormatError(
                f"{path}: tensor {entry.name[:120]!r} begins at byte {entry.offset}, expected {position}: "
                f"found {kind} after {previous}; the file is damaged"
            )
        position, previous = entry.offset + entry.length, repr(entry.name[:120])
    if position > file_bytes:
        raise truncated(path, file_bytes, position)
    if position < file_bytes:
        raise FileFormatError(
            f"{path}: found {file_bytes - position} bytes after the last tensor, expected the file to end at "
            f"byte {position}; download it again"
        )
