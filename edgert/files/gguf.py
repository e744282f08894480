"""GGUF v2 and v3: the header of a file, read without trusting it (specification: ggml's docs/gguf.md)."""

from __future__ import annotations

import math
import struct
import sys
from pathlib import Path
from typing import Any

from edgert.config import shown
from edgert.errors import FileFormatError, UnsupportedFormatError
from edgert.files.checkpoint import Checkpoint, TensorEntry
from edgert.files.gguf_window import HeaderWindow
from edgert.files.opening import open_binary, truncated
from edgert.files.tensor_types import GGML_TYPES

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 16
MAX_STRING_BYTES = 1 << 20
MAX_KEY_BYTES = (1 << 16) - 1
MAX_TENSOR_NAME_BYTES = 255
MAX_KEY_VALUES = 1 << 16
MAX_TENSORS = 1 << 16
MAX_ARRAY_ELEMENTS = 1 << 22  # of all arrays
ELEMENT_BYTES = 8  # in a list
NUMBER_BYTES = 32
SHORT_STRINGS_BYTES = 1 << 16
MAX_DIMENSIONS = 4

# Smallest key-value: key length, one character, type, one byte. Smallest tensor: the same, one dimension, type, offset.
_MIN_KEY_VALUE_BYTES = 8 + 1 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8

# Value types: number -> struct letter (the types that have a fixed size).
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_BOOL, _STRING, _ARRAY = 7, 8, 9


def is_gguf(start: bytes) -> bool:
    """Whether a file that begins with `start` is GGUF."""
    return start[:4] == MAGIC


def open_gguf(path: Path, *, is_named: bool = True) -> Checkpoint:
    """Reads the header of one file: its key-values and where its tensors lie. `is_named`: by the user.

    Raises FileFormatError (with the byte) if the file breaks a rule, UnsupportedFormatError for version 1, big-endian
    files and unknown tensor types.
    """
    with open_binary(path, is_named=is_named) as (file, file_bytes):
        header = HeaderWindow(file, path, file_bytes)
        num_tensors, num_key_values = _read_counts(header)
        metadata = _read_key_values(header, num_key_values)
        alignment = _alignment(header, metadata)
        tensors = _read_tensors(header, num_tensors, alignment)
    return Checkpoint(
        kind="gguf",
        path=path,
        files=(path,),
        config={},
        generation_config={},
        tensors=tensors,
        metadata=metadata,
    )


def _read_counts(header: HeaderWindow) -> tuple[int, int]:
    if not is_gguf(magic := bytes(header.take(4, "magic"))):
        raise header.error(0, "magic", magic, repr(MAGIC))
    version = header.scalar("I", "version")
    if version not in (2, 3):
        if version in (2 << 24, 3 << 24):
            raise UnsupportedFormatError(
                f"{header.path}: version at byte 4: found a big-endian GGUF, expected little-endian; convert the model"
            )
        raise UnsupportedFormatError(
            f"{header.path}: version at byte 4: found GGUF version {version}, expected 2 or 3; convert the model again"
        )
    num_tensors = header.scalar("Q", "number of tensors")
    num_key_values = header.scalar("Q", "number of key-values")
    left = header.file_bytes - header.position
    limit = min(MAX_KEY_VALUES, left // _MIN_KEY_VALUE_BYTES)
    if num_key_values > limit:
        raise header.error(16, "number of key-values", num_key_values, f"at most {limit}")
    left -= num_key_values * _MIN_KEY_VALUE_BYTES
    limit = min(MAX_TENSORS, left // _MIN_TENSOR_BYTES)
    if num_tensors > limit:
        raise header.error(8, "number of tensors", num_tensors, f"at most {limit}")
    return num_tensors, num_key_values


def _read_key_values(header: HeaderWindow, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for index in range(count):
        start = header.position
        key = header.string(MAX_KEY_BYTES, f"key {index}")
        if not key or key in metadata:
            raise header.error(start, f"key {index}", f"{key[:80]!r}", "a key that is not empty and occurs once")
        kind = header.scalar("I", f"type of {key[:80]!r}")
        metadata[key] = _read_value(header, f"value of {key[:80]!r}", kind)
    return metadata


def _read_value(header: HeaderWindow, what: str, kind: int) -> Any:
    start = header.position
    if kind == _STRING:
        return header.string(MAX_STRING_BYTES, what)
    if kind == _ARRAY:
        return _read_array(header, what)
    if kind not in _SCALARS:
        raise header.error(start - 4, what, f"type {kind}", "a type from 0 to 12")
    if kind == _BOOL:
        return _checked_bools(header, what, start, header.take(1, what))[0]
    return header.scalar(_SCALARS[kind], what)


def _read_array(header: HeaderWindow, what: str) -> list[Any]:
    start = header.position
    kind = header.scalar("I", what)
    count = header.scalar("Q", what)
    if kind != _STRING and kind not in _SCALARS:
        found = "an array of arrays" if kind == _ARRAY else f"an array of type {kind}"
        raise header.error(start, what, found, "an array of numbers, booleans or strings")
    header.array_elements += count
    if header.array_elements > MAX_ARRAY_ELEMENTS:
        raise header.error(start + 4, what, f"{count} elements", f"at most {MAX_ARRAY_ELEMENTS} in all arrays")
    if kind == _STRING:
        return _read_strings(header, what, count)
    letter = _SCALARS[kind]
    begin = header.position
    raw = header.take(count * struct.calcsize("<" + letter), what)
    header.charge(count * _number_bytes(raw, letter), what)
    if kind == _BOOL:
        return _checked_bools(header, what, begin, raw)
    # A cast reads in the order of this machine: little-endian, as is every one that edgert runs on.
    return raw.cast(letter).tolist()  # type: ignore[call-overload, no-any-return]


def _read_strings(header: HeaderWindow, what: str, count: int) -> list[str]:
    """A vocabulary has 10^5 strings: they are read by the thousand, and their memory is counted as often."""
    if count * 8 > header.file_bytes - header.position:
        header.take(count * 8, what)  # raises: even empty strings would not fit
    strings: list[str] = []
    while len(strings) < count:
        some = _read_short_strings(header, count - len(strings))
        header.charge(sum(map(sys.getsizeof, some)) + ELEMENT_BYTES * len(some), what)
        strings += some
        if len(strings) < count:
            strings.append(header.string(MAX_STRING_BYTES, f"{what}, element {len(strings)}"))
    return strings


def _read_short_strings(header: HeaderWindow, count: int) -> list[str]:
    """Up to `count` strings from the bytes at hand: stops before one that is not all there, or no UTF-8."""
    strings: list[str] = []
    view, position = bytes(header.at_hand(header.position)[:SHORT_STRINGS_BYTES]), 0
    unpack_length = struct.Struct("<Q").unpack_from
    while len(strings) < count and position + 8 <= len(view):
        end = position + 8 + unpack_length(view, position)[0]
        if end > len(view):
            break
        try:
            strings.append(view[position + 8 : end].decode("utf-8"))
        except UnicodeDecodeError:
            break
        position = end
    header.position += position
    return strings


def _number_bytes(raw: memoryview, letter: str) -> int:
    """Memory of a list element: Python keeps each number up to 255 only once."""
    width = struct.calcsize("<" + letter)
    is_small = letter not in "fd" and not any(bytes(raw[i::width]).strip(b"\0") for i in range(1, width))
    return ELEMENT_BYTES if is_small else ELEMENT_BYTES + NUMBER_BYTES


def _checked_bools(header: HeaderWindow, what: str, start: int, raw: memoryview) -> list[bool]:
    values = bytes(raw)
    if values.translate(None, b"\0\1"):
        raise header.error(start, what, "a byte other than 0 and 1", "booleans")
    return [value == 1 for value in values]


def _alignment(header: HeaderWindow, metadata: dict[str, Any]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    is_whole = isinstance(alignment, int) and not isinstance(alignment, bool)
    if not is_whole or not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise FileFormatError(
            f"{header.path}: general.alignment: found {shown(alignment)}, "
            f"expected a power of two up to {MAX_ALIGNMENT}; convert the model again"
        )
    return int(alignment)


def _read_tensors(header: HeaderWindow, count: int, alignment: int) -> dict[str, TensorEntry]:
    """Entries with offsets in the file. Shapes are turned round: GGUF writes the innermost dimension first."""
    relative: list[tuple[TensorEntry, int]] = []
    names: set[str] = set()
    for index in range(count):
        position = header.position
        entry = _read_tensor(header, index)
        if entry.name in names:
            raise header.error(position, f"name of tensor {index}", f"{entry.name!r} again", "each name once")
        if entry.offset % alignment:
            what = f"offset of tensor {entry.name!r}"
            raise header.error(header.position - 8, what, entry.offset, f"a multiple of {alignment}")
        names.add(entry.name)
        relative.append((entry, position))
    data_start = -(-header.position // alignment) * alignment
    _check_ranges(header, relative, data_start)
    return {
        e.name: TensorEntry(e.name, e.format, e.shape, e.file, data_start + e.offset, e.length) for e, _ in relative
    }


def _read_tensor(header: HeaderWindow, index: int) -> TensorEntry:
    what = f"tensor {index}"
    start = header.position
    name = header.string(MAX_TENSOR_NAME_BYTES, f"name of {what}")
    if not name:
        raise header.error(start, f"name of {what}", "no characters", "a name")
    what = f"tensor {name!r}"
    num_dimensions = header.scalar("I", f"dimensions of {what}")
    if not 1 <= num_dimensions <= MAX_DIMENSIONS:
        raise header.error(header.position - 4, f"dimensions of {what}", num_dimensions, f"1 to {MAX_DIMENSIONS}")
    start = header.position
    dimensions = [header.scalar("Q", f"shape of {what}") for _ in range(num_dimensions)]
    kind = header.scalar("I", f"type of {what}")
    offset = header.scalar("Q", f"offset of {what}")
    if kind not in GGML_TYPES:
        raise UnsupportedFormatError(
            f"{header.path}: type of {what} at byte {header.position - 12}: found ggml type {kind}, "
            "expected one that edgert knows; use a model file in another quantisation"
        )
    format_name, block_elements, block_bytes = GGML_TYPES[kind]
    # Python's integers do not wrap, so the product of hostile dimensions is exact here.
    num_bytes = math.prod(dimensions) // block_elements * block_bytes
    if 0 in dimensions or dimensions[0] % block_elements:
        expected = f"dimensions above 0, the first a multiple of {block_elements} for {format_name}"
        raise header.error(start, f"shape of {what}", dimensions, expected)
    if max(dimensions) >= 2**31 or num_bytes >= 2**62:
        raise header.error(start, f"shape of {what}", dimensions, "dimensions below 2^31 and a size below 2^62")
    return TensorEntry(name, format_name, tuple(reversed(dimensions)), 0, offset, num_bytes)


def _check_ranges(header: HeaderWindow, tensors: list[tuple[TensorEntry, int]], data_start: int) -> None:
    """No tensor may reach beyond the file or into another one."""
    previous_name, previous_end = "", 0
    for entry, position in sorted(tensors, key=lambda item: item[0].offset):
        if entry.offset < previous_end:
            found = f"byte {entry.offset} of the data, inside {previous_name!r}"
            raise header.error(position, f"offset of tensor {entry.name!r}", found, f"{previous_end} or more")
        previous_name, previous_end = entry.name, entry.offset + entry.length
    if data_start + previous_end > header.file_bytes and tensors:
        raise truncated(header.path, header.file_bytes, data_start + previous_end)
