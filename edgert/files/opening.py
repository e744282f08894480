"""Opening and reading files of a model: system errors become edgert's, sizes are checked before anything is read."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from edgert.errors import FileFormatError, ModelNotFoundError
from edgert.files.containment import real_path

MAX_JSON_BYTES = 32 << 20
# Characters beyond ASCII can make a text four times as large as its bytes.
MAX_TEXT_JSON_BYTES = 4 << 20
# A value of a few bytes, [] or 0, takes tens of bytes as an object: a file of many must be long.
MAX_JSON_VALUES = 200_000
BYTES_PER_JSON_VALUE = 64


@contextmanager
def open_binary(path: Path, *, is_named: bool = False) -> Iterator[tuple[BinaryIO, int]]:
    """Opens a regular file for reading; yields it with its size in bytes.

    `is_named`: the user gave this very path; any other must not lead out of its folder (edgert.files.containment).
    """
    with os_errors(path):
        real = real_path(path, is_named=is_named)
        # A pipe or a device would block, or do something: look before opening, and again at what was opened.
        _check_regular(path, os.stat(real).st_mode)
        descriptor = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            _check_regular(path, status.st_mode)
            yield file, status.st_size


def _check_regular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device, pipe or socket"
        raise FileFormatError(f"{path}: found {kind}, expected a file; give the path of a model file")


def file_mode(path: Path) -> int:
    """The mode bits of what `path` names, links followed."""
    with os_errors(path):
        try:
            return os.stat(path).st_mode
        except ValueError as error:  # a NUL character in the path
            raise ModelNotFoundError(f"{str(path)!r}: no path ({error}); check it") from None


@contextmanager
def os_errors(path: Path) -> Iterator[None]:
    """Turns system errors while looking at `path` into edgert's."""
    try:
        yield
    except FileNotFoundError:
        raise ModelNotFoundError(f"{path}: found no such file or folder, expected a model; check the path") from None
    except (IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise ModelNotFoundError(
            f"{path}: cannot be opened ({error.strerror}); check the path and its permissions"
        ) from error
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read ({error.strerror}); check the path and the disk") from error


def read_exactly(file: BinaryIO, path: Path, offset: int, length: int) -> bytes:
    """Bytes [offset, offset + length) of the file. REQUIRES: the caller has held `length` against the file's size."""
    file.seek(offset)
    pieces = []
    missing = length
    while missing:
        piece = file.read(missing)
        if not piece:
            raise _ended_early(path, offset + length - missing, missing)
        pieces.append(piece)
        missing -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def read_into(file: BinaryIO, path: Path, offset: int, out: memoryview) -> None:
    """Fills `out` with the bytes from `offset` on. REQUIRES: as read_exactly."""
    os.lseek(file.fileno(), offset, os.SEEK_SET)
    done = 0
    while done < len(out):
        count = os.readv(file.fileno(), [out[done:]])
        if not count:
            raise _ended_early(path, offset + done, len(out) - done)
        done += count


def _ended_early(path: Path, position: int, missing: int) -> FileFormatError:
    return FileFormatError(
        f"{path}: found the end of the file at byte {position}, expected {missing} more bytes; "
        "was it changed while it was read?"
    )


def read_start(path: Path, length: int) -> bytes:
    """The first `length` bytes of a file that the user named, or fewer if it is shorter."""
    with open_binary(path, is_named=True) as (file, file_bytes):
        return read_exactly(file, path, 0, min(length, file_bytes))


def read_whole(path: Path, max_bytes: int, *, is_named: bool = False) -> bytes:
    """All of a file that is not the weights, at most `max_bytes`."""
    with open_binary(path, is_named=is_named) as (file, file_bytes):
        if file_bytes > max_bytes:
            raise FileFormatError(f"{path}: found {file_bytes} bytes, expected at most {max_bytes}; is it this file?")
        return read_exactly(file, path, 0, file_bytes)


def is_there(path: Path) -> bool:
    """Whether a folder has this entry: a broken link, or a pipe, counts, so that it is an error and not ignored."""
    with os_errors(path):
        return os.path.lexists(path)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    return parse_json(read_whole(path, MAX_JSON_BYTES), str(path))


def parse_json(text: bytes, source: str, *, file_bytes: int = 0) -> dict[str, Any]:
    """Parses a JSON object; duplicate keys, NaN and nesting without end are errors that name `source`.

    file_bytes: of the file that the text is in, which may then hold more values.
    """
    _check_json_size(text, source, file_bytes)
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f"{source}: found bytes that are not UTF-8 at byte {error.start}, expected JSON; download the file again"
        ) from None
    except RecursionError:
        raise FileFormatError(
            f"{source}: found JSON nested too deeply, expected a few levels; is it this file?"
        ) from None
    except ValueError as error:
        raise FileFormatError(
            f"{source}: found no valid JSON{_place_of(error)}, expected an object; download the file again"
        ) from None
    if not isinstance(value, dict):
        raise FileFormatError(f"{source}: found a JSON {type(value).__name__}, expected an object; is it this file?")
    return value


def gigabytes(num_bytes: int) -> str:
    """A size for a person: 4.1 GB, 12.0 MB, 312 bytes."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.1f} {unit}"
    return f"{num_bytes} bytes"


def truncated(path: Path, file_bytes: int, expected_bytes: int) -> FileFormatError:
    """The error for a file that ends before its last tensor."""
    return FileFormatError(
        f"{path}: file holds {gigabytes(file_bytes)} of {gigabytes(expected_bytes)}: found {file_bytes} bytes, "
        f"expected {expected_bytes}; the download did not finish, download it again"
    )


def _check_json_size(text: bytes, source: str, file_bytes: int) -> None:
    if len(text) > MAX_TEXT_JSON_BYTES and not text.isascii():
        raise FileFormatError(
            f"{source}: found {len(text)} bytes of JSON with characters beyond ASCII, "
            f"expected at most {MAX_TEXT_JSON_BYTES}; is it this file?"
        )
    num_values = text.count(b",") + text.count(b"[") + text.count(b"{")
    limit = MAX_JSON_VALUES + max(file_bytes, len(text)) // BYTES_PER_JSON_VALUE
    if num_values > limit:
        raise FileFormatError(
            f"{source}: found {num_values} values, expected at most {limit} in a file this long; is it this file?"
        )


def _place_of(error: ValueError) -> str:
    """Where and why the JSON is broken, in bytes."""
    if isinstance(error, json.JSONDecodeError):
        return f" at byte {len(error.doc[: error.pos].encode())} ({error.msg})"
    return f" ({error})"


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"key {twice[:80]!r} occurs twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
