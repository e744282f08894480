"""What of a file lies in the page cache."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path


def resident_pages(path: Path) -> int:
    """Pages of the file that the system has in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        pages = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
        view = ctypes.c_char.from_buffer(mapped)
        assert libc.mincore(ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_size_t(len(mapped)), pages) == 0
        del view
        return sum(page & 1 for page in pages)
