"""Reading a GGUF header piece by piece: no move beyond the file, no memory beyond what a file of its size may have."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO

from edgert.errors import FileFormatError
from edgert.files.opening import read_into

WINDOW_BYTES = 1 << 20
# Strings and lists take more memory than their bytes in the file: all of them at most this and the file's size.
FREE_VALUE_BYTES = 36 << 20


class HeaderWindow:
    """A window of the file's bytes and a position in the file; every move is held against the file's size."""

    def __init__(self, file: BinaryIO, path: Path, file_bytes: int) -> None:
        self.path = path
        self.file_bytes = file_bytes
        self.position = 0
        self.array_elements = 0
        self.value_bytes = 0
        self._file = file
        self._window = bytearray()
        self._window_start = 0

    def take(self, length: int, what: str) -> memoryview:
        """The next `length` bytes; moves past them."""
        start = self.position
        if length > self.file_bytes - start:
            raise FileFormatError(
                f"{self.path}: {what} at byte {start}: found {self.file_bytes - start} bytes, expected {length}; "
                "the download did not finish or the file is damaged"
            )
        if start + length > self._window_start + len(self._window):
            self._move_window(max(length, WINDOW_BYTES))
        self.position = start + length
        return self.at_hand(start)[:length]

    def at_hand(self, position: int) -> memoryview:
        """What the window holds from `position` on. REQUIRES: no position before the last one that was taken."""
        return memoryview(self._window)[position - self._window_start :]

    def _move_window(self, wanted: int) -> None:
        """To the position, with at least what is wanted. What was read before is dropped: a header may be long."""
        rest = self.at_hand(self.position)
        window = bytearray(min(wanted, self.file_bytes - self.position))
        window[: len(rest)] = rest
        read_into(self._file, self.path, self.position + len(rest), memoryview(window)[len(rest) :])
        self._window, self._window_start = window, self.position

    def scalar(self, letter: str, what: str) -> Any:
        return struct.unpack("<" + letter, self.take(struct.calcsize("<" + letter), what))[0]

    def string(self, limit: int, what: str) -> str:
        start = self.position
        length = self.scalar("Q", what)
        if length > limit:
            raise self.error(start, what, f"{length} bytes", f"at most {limit}")
        begin = self.position
        try:
            text = str(self.take(length, what), "utf-8")
        except UnicodeDecodeError as error:
            raise self.error(begin, what, f"no UTF-8 ({error.reason})", "UTF-8") from None
        self.charge(sys.getsizeof(text), what)
        return text

    def charge(self, num_bytes: int, what: str) -> None:
        """Takes the memory of a value off what all values may have."""
        self.value_bytes += num_bytes
        limit = FREE_VALUE_BYTES + self.file_bytes
        if self.value_bytes > limit:
            found = f"values that take {self.value_bytes} bytes of memory"
            raise self.error(self.position, what, found, f"at most {limit} for a file this long")

    def error(self, position: int, what: str, found: object, expected: str) -> FileFormatError:
        return FileFormatError(
            f"{self.path}: {what} at byte {position}: found {found}, expected {expected}; "
            "the file is damaged, download or convert it again"
        )
