"""The disk under a model: its files out of the page cache, how much of them is in it, how fast the disk reads them."""

import ctypes
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from _common import import_tree

import_tree()
from edgert import _core  # noqa: E402


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
    """Bytes a second of direct reads from the start of the file on, as weights are streamed, into memory that is used
    again and again: memory that nobody has touched yet costs more than a fast disk."""
    rate, is_direct = _core.read_rate(str(file), offset=0, num_bytes=file.stat().st_size, most_s=seconds)
    if not is_direct:
        raise OSError(f"{file}: found no direct reads, expected a disk that has them")
    return rate
