"""The bytes of the weights: checksums of parts, numbers that are finite, padding that is zero."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgert.errors import FileFormatError
from edgert.files import Checkpoint, TensorEntry
from edgert.files.opening import open_binary, read_exactly
from edgert.files.tensor_types import GGML_TYPES
from edgert.quant import outliers
from edgert.verify.reading import Reader

# Float formats: the integer of their width, and the bits of the exponent, all of them set for infinities and NaN.
_EXPONENTS: dict[str, tuple[str, int]] = {
    "f32": ("<u4", 0x7F800000), "f16": ("<u2", 0x7C00), "bf16": ("<u2", 0x7F80), "f64": ("<u8", 0x7FF0 << 48),
}  # fmt: skip
# Where the float16 scales lie in a block of a ggml type.
_BLOCK_SCALES: dict[str, tuple[int, ...]] = {
    "q4_0": (0,), "q4_1": (0, 2), "q5_0": (0,), "q5_1": (0, 2), "q8_0": (0,),
    "q2_k": (80, 82), "q3_k": (108,), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,),
    "iq4_nl": (0,), "iq4_xs": (0,), "tq1_0": (52,), "tq2_0": (64,),
}  # fmt: skip
_BLOCK_BYTES = {name: block_bytes for name, _, block_bytes in GGML_TYPES.values()}
_FLOAT_PARTS = ("scale", "minimum", "superscale")
_ENDLESS_EXPONENT = 253  # of mxfp4: from here on 12 times the power of two is infinite
_BF16_SCALES = ("p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "c2", "c3", "c4", "ternary")


@dataclass(frozen=True, slots=True)
class Span:
    """A tensor, or a part of one: `num_bad` counts the values in a piece of it that are not finite."""

    what: str
    offset: int
    length: int
    unit: int
    num_bad: Callable[[bytes], int]
    checksum: str | None


def spans_of(checkpoint: Checkpoint, file: int) -> list[Span]:
    """What lies in a file, in the file's order."""
    found = [span for entry in checkpoint.tensors.values() if entry.file == file for span in _spans(entry)]
    return sorted(found, key=lambda span: span.offset)


def check_spans(reader: Reader, spans: list[Span], *, is_ours: bool) -> Iterator[FileFormatError]:
    """Reads everything from the first span to the end of the file; yields an error for each one that is wrong.

    The caller has read up to the first span.
    """
    for span in spans:
        yield from _check_padding(reader, span.offset, span.what, is_ours)
        checksum, num_bad = 0, 0
        for piece in reader.pieces(span.length, span.unit):
            num_bad += span.num_bad(piece)
            if span.checksum is not None:
                checksum = zlib.crc32(piece, checksum)
        what = f"{reader.path}: {span.what}, bytes {span.offset} to {span.offset + span.length}"
        if span.checksum is not None and span.checksum != f"crc32:{checksum:08x}":
            yield FileFormatError(
                f"{what}: found crc32:{checksum:08x}, expected {span.checksum}; the file is damaged, get it again"
            )
        if num_bad:
            yield FileFormatError(
                f"{what}: found {num_bad} values that are infinite or no numbers, expected none; get the model again"
            )
    yield from _check_padding(reader, reader.num_bytes, "the end of the file", is_ours)


def check_outliers(checkpoint: Checkpoint, file_index: int) -> Iterator[FileFormatError]:
    """The places of outliers, tensor after tensor; yields an error for each one whose places are wrong."""
    entries = [
        entry for entry in checkpoint.tensors.values() if entry.file == file_index and _has_whole_outliers(entry)
    ]
    if not entries:
        return
    path = checkpoint.files[file_index]
    with open_binary(path) as (file, _):
        for entry in entries:
            starts, columns = (
                np.frombuffer(read_exactly(file, path, part.offset, part.length), dtype)
                for part, dtype in zip(entry.outliers[:2], ("<u4", "<u2"), strict=True)
            )
            if found := outliers.problem(starts, columns, entry.shape[-1]):
                yield FileFormatError(f"{path}: tensor {entry.name!r}: outliers of {found}; convert the model again")


def _has_whole_outliers(entry: TensorEntry) -> bool:
    """Whether their parts are as they must be; where not, opening the model has said so."""
    if tuple(part.name for part in entry.outliers) != outliers.PART_NAMES:
        return False
    num_outliers = entry.outliers[1].length // 2
    lengths = tuple(part.length for part in entry.outliers)
    return lengths == outliers.part_bytes(entry.shape[0], num_outliers)


def _check_padding(reader: Reader, end: int, before: str, is_ours: bool) -> Iterator[FileFormatError]:
    """Bytes of no tensor: our folder fills them with zeros, other writers with what they like."""
    start, num_bad = reader.position, 0
    for piece in reader.pieces(end - start):
        num_bad += len(piece) - piece.count(0)
    if num_bad and is_ours:
        yield FileFormatError(
            f"{reader.path}: bytes {start} to {end}, before {before}: found {num_bad} that are not zero, "
            "expected padding; the file is damaged, convert the model again"
        )


def _spans(entry: TensorEntry) -> Iterator[Span]:
    if not entry.parts:
        unit, num_bad = _values(entry.format)
        yield Span(f"tensor {entry.name!r}", entry.offset, entry.length, unit, num_bad, entry.checksum)
    for part in entry.parts + entry.outliers:
        unit, num_bad = 1, _none
        if part.name in _FLOAT_PARTS:
            unit, num_bad = _values("bf16" if entry.format in _BF16_SCALES else "f16")
        elif part.name == "outlier_values":
            unit, num_bad = _values("f16")
        elif part.name == "exponent":
            num_bad = _num_endless
        what = f"tensor {entry.name!r}, part {part.name!r}"
        yield Span(what, part.offset, part.length, unit, num_bad, part.checksum)


def _values(format_name: str) -> tuple[int, Callable[[bytes], int]]:
    """Bytes that belong together, and how to count what is not finite in them."""
    if format_name in _EXPONENTS:
        dtype, bits = _EXPONENTS[format_name]
        return np.dtype(dtype).itemsize, lambda piece: _num_not_finite(np.frombuffer(piece, dtype), bits)
    if format_name in _BLOCK_SCALES:
        block_bytes, places = _BLOCK_BYTES[format_name], _BLOCK_SCALES[format_name]
        return block_bytes, lambda piece: _num_bad_scales(piece, block_bytes, places)
    if format_name == "mxfp4":
        block_bytes = _BLOCK_BYTES[format_name]
        return block_bytes, lambda piece: _num_endless(piece[::block_bytes])
    return 1, _none


def _none(piece: bytes) -> int:
    return 0


def _num_endless(exponents: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(exponents, np.uint8) >= _ENDLESS_EXPONENT))


def _num_not_finite(words: NDArray[np.unsignedinteger], bits: int) -> int:
    mask = words.dtype.type(bits)
    return int(np.count_nonzero((words & mask) == mask))


def _num_bad_scales(piece: bytes, block_bytes: int, places: tuple[int, ...]) -> int:
    blocks = np.frombuffer(piece, np.uint8).reshape(-1, block_bytes)
    return sum(_num_not_finite(np.ascontiguousarray(blocks[:, i : i + 2]).view("<u2"), 0x7C00) for i in places)
