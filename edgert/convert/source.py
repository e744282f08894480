"""Reads rows of a weight from the files of a checkpoint, in the order that the model's definition means."""

from __future__ import annotations

import os
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from edgert.errors import FileFormatError
from edgert.files import Checkpoint
from edgert.loader import WeightSource
from edgert.quant import format as formats
from edgert.quant.format import Quantized


class SourceFiles:
    """The open files of a checkpoint; any thread may read. Context manager."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._fds: list[int] = []

    def __enter__(self) -> SourceFiles:
        try:
            for path in self._checkpoint.real_files:
                self._fds.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK))
        except OSError:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())

    def rows(self, source: WeightSource, begin: int, end: int) -> Quantized:
        """Rows [begin, end) as codes and scales of the format that they have; a vector is one column per row."""
        spec = formats.get(source.entry.format).spec
        cols = source.cols or 1
        if source.row_order == "unpermute_rope":
            raw = self._unpermuted(source, formats.row_bytes(spec, cols), begin, end)
        else:
            raw = self._raw(source, formats.row_bytes(spec, cols), begin, end)
        return formats.get(source.entry.format).decode(raw, cols)

    def _raw(self, source: WeightSource, row_bytes: int, begin: int, end: int) -> NDArray[np.uint8]:
        """File bytes [end - begin, row_bytes] in the file's order."""
        first = source.first_row + begin
        if source.index is not None:
            first += source.index * source.entry.shape[1]
        buffer = np.empty((end - begin, row_bytes), np.uint8)
        self._read(source, source.entry.offset + first * row_bytes, buffer.reshape(-1))
        return buffer

    def _unpermuted(self, source: WeightSource, row_bytes: int, begin: int, end: int) -> NDArray[np.uint8]:
        """Row h * d + t * d / 2 + j of the model is row h * d + 2 * j + t of a GGUF file, d = rows of a head."""
        head = source.rows // source.heads
        first, last = begin // head * head, min(-(-end // head) * head, source.rows)
        raw = self._raw(source, row_bytes, first, last)
        wanted = np.arange(begin, end)
        row, half = wanted % head, head // 2
        ordered: NDArray[np.uint8] = raw[wanted - row + 2 * (row % half) + row // half - first]
        return ordered

    def _read(self, source: WeightSource, offset: int, buffer: NDArray[np.uint8]) -> None:
        """Fills the buffer. Raises FileFormatError if the file ends before."""
        view = buffer.data
        done = 0
        while done < len(view):
            count = os.preadv(self._fds[source.entry.file], [view[done:]], offset + done)
            if not count:
                path = self._checkpoint.files[source.entry.file]
                raise FileFormatError(
                    f"{path}: {source.name}: found {done} bytes at byte {offset}, expected {len(view)}; "
                    "download the file again"
                )
            done += count
