"""A file read once, from its first byte to its last, in pieces, with its checksums on the way."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from edgert.errors import FileFormatError
from edgert.files.opening import open_binary, read_exactly

Progress = Callable[[int], None]

PIECE_BYTES = 4 << 20

_SHA256 = re.compile("[0-9a-f]{64}")
_GIT_SHA1 = re.compile("[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Expected:
    """A checksum of a whole file, and where it is known from."""

    kind: str  # "sha256", or "git": sha1 over b"blob SIZE\0" and the content, as git names what it stores
    digest: str
    source: str


def hub_checksum(real: Path) -> Expected | None:
    """What the name of a blob in the Hugging Face cache says of its content: LFS files sha256, others git's sha1."""
    if real.parent.name != "blobs":
        return None
    for kind, pattern in (("sha256", _SHA256), ("git", _GIT_SHA1)):
        if pattern.fullmatch(real.name):
            return Expected(kind, real.name, "the name in the Hugging Face cache")
    return None


class Reader:
    """Hands out a file's bytes in order; `finish` reads the rest and holds the checksums against what was expected."""

    def __init__(
        self, file: BinaryIO, path: Path, num_bytes: int, expected: list[Expected], progress: Progress
    ) -> None:
        self.path = path
        self.num_bytes = num_bytes
        self.position = 0
        self._file = file
        self._progress = progress
        self._digests = [(known, _new_digest(known.kind, num_bytes)) for known in expected]

    def pieces(self, length: int, unit: int = 1) -> Iterator[bytes]:
        """The next `length` bytes, in pieces of whole units. Raises FileFormatError if the file became shorter."""
        end = self.position + length
        step = max(PIECE_BYTES // unit, 1) * unit
        while self.position < end:
            piece = read_exactly(self._file, self.path, self.position, min(step, end - self.position))
            self.position += len(piece)
            for _, digest in self._digests:
                digest.update(piece)
            self._progress(self.position)
            yield piece

    def finish(self) -> str:
        """Names of the checksums that agree. Raises FileFormatError for one that does not."""
        for _ in self.pieces(self.num_bytes - self.position):
            pass
        for known, digest in self._digests:
            if digest.hexdigest() != known.digest:
                raise FileFormatError(
                    f"{self.path}: found {known.kind} {digest.hexdigest()}, expected {known.digest} by {known.source}; "
                    "the file is damaged or was changed, get it again"
                )
        return ", ".join(f"{known.kind} as {known.source} says" for known, _ in self._digests)


def _new_digest(kind: str, num_bytes: int) -> hashlib._Hash:
    if kind == "sha256":
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % num_bytes, usedforsecurity=False)


@contextmanager
def open_reader(path: Path, expected: list[Expected], progress: Progress, *, is_named: bool) -> Iterator[Reader]:
    """The file at its first byte; progress(bytes read so far)."""
    with open_binary(path, is_named=is_named) as (file, num_bytes):
        yield Reader(file, path, num_bytes, expected, progress)
