"""The disk under a model: its files out of the page cache, how much of them is in it, how fast the disk reads them."""

import ctypes
import mmap
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from _common import import_tree

import_tree()
from edgert import _core  # noqa: E402

# As weights are streamed: pieces of this size, in requests of 1 MiB, 8 at a time.
PIECE_BYTES = 4 << 20
REQUEST_BYTES = 1 << 20
DEPTH = 8
PIECES_AHEAD = 6


def model_files(model: Path) -> list[Path]:
    """The file, or all files of the folder."""
    return [model] if model.is_file() else sorted(path for path in model.rglob("*") if path.is_file())


def num_bytes(files: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in files)


def evict(files: Sequence[Path]) -> None:
    """Takes the files out of the page cache, where a memory group would not be charged for them."""
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)  # dirty pages stay
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def cached_bytes(files: Sequence[Path]) -> int:
    """Bytes of the files that are in the page cache."""
    return sum(_cached_bytes(path) for path in files if path.stat().st_size > 0)


def _cached_bytes(path: Path) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        pages = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
        # Only for its address: nothing is read.
        view = np.frombuffer(mapped, np.uint8)
        address = view.ctypes.data
        del view
        if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(mapped)), pages.ctypes.data_as(ctypes.c_void_p)):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
        return int((pages & 1).sum()) * mmap.PAGESIZE


def read_rate(file: Path, seconds: float) -> float:
    """Bytes a second of direct reads, one piece of the file after another and again from its start."""
    num_pieces = max(1, file.stat().st_size // PIECE_BYTES)
    length = min(PIECE_BYTES, file.stat().st_size)
    reader = _core.Reader([str(file)], depth=DEPTH, chunk_bytes=REQUEST_BYTES)
    for tag in range(PIECES_AHEAD):
        reader.submit(tag, offset=tag % num_pieces * PIECE_BYTES, length=length)
    began_s, num_done, num_asked = time.perf_counter(), 0, PIECES_AHEAD
    while (elapsed_s := time.perf_counter() - began_s) < seconds:
        for tag, outcome, error in reader.wait(1, 1.0):
            if outcome != "complete":
                raise OSError(f"{file}: a direct read ended as {outcome}: {error}")
            reader.submit(num_asked, offset=num_asked % num_pieces * PIECE_BYTES, length=length)
            reader.take(tag)  # frees its memory
            num_asked += 1
            num_done += 1
    reader.cancel_all()
    reader.close()
    return num_done * length / elapsed_s
