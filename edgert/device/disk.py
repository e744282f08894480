"""How fast the disk gives large blocks, past the page cache."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from edgert import _core
from edgert.errors import DeviceError

# 256 KiB requests one after another: the fastest way that was measured (fewer, larger ones are slower).
BLOCK_BYTES = 256 * 1024
SECTOR_BYTES = 4096
SAMPLE_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRate:
    """gb_per_s in 10**9 bytes; is_direct: past the page cache (else refused by the system: it may be memory's rate)."""

    path: str
    gb_per_s: float
    is_direct: bool


def measure_disk(path: Path | None = None) -> DiskRate:
    """Reads up to 128 MiB of `path`, a file or a folder (then of a file made there; None: the temporary folder).

    Raises DeviceError where that cannot be read or written.
    """
    place = Path(tempfile.gettempdir()) if path is None else path
    try:
        if place.is_file():
            return _measure(place, place)
        with tempfile.NamedTemporaryFile(dir=place, prefix="edgert-disk-") as file:
            block = os.urandom(BLOCK_BYTES)
            for _ in range(SAMPLE_BYTES // BLOCK_BYTES):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
            return _measure(Path(file.name), place)
    except OSError as error:
        raise DeviceError(
            f"disk rate of {place}: found {error.strerror or error}, expected a readable file or a writable folder; "
            "name another one"
        ) from error


def _measure(file: Path, shown: Path) -> DiskRate:
    num_bytes = min(file.stat().st_size, SAMPLE_BYTES)
    # Direct reads are of whole sectors: a file that is smaller than a block gives what it has of them.
    block_bytes = min(BLOCK_BYTES, num_bytes // SECTOR_BYTES * SECTOR_BYTES)
    if block_bytes == 0:
        raise DeviceError(
            f"disk rate of {shown}: found a file of {num_bytes} bytes, expected at least {SECTOR_BYTES}; "
            "name another one"
        )
    rate, is_direct = _core.disk_read_rate(str(file), num_bytes, block_bytes)
    return DiskRate(path=str(shown), gb_per_s=rate / 1e9, is_direct=is_direct)
