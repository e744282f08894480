"""How fast the disk gives its bytes past the page cache, and which requests it gives them to fastest."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgert import _core
from edgert.device.read_size import DEFAULT_READ_SIZE, READ_SIZES, ReadSize
from edgert.errors import DeviceError

SECTOR_BYTES = _core.DIRECT_ALIGNMENT
# Each point of the curve reads other bytes, and at least as many as its requests that are under way hold.
SAMPLE_BYTES = 128 << 20
# Of one point; the requests that are under way by then are waited for.
POINT_S = 0.12
# Of the best rate: what fewer bytes under way may cost. A demand read waits for those that were begun before it.
TOLERANCE = 0.05
# What is under way lasts so long: while all cores compute, the reader's thread may come back as late.
AHEAD_S = 0.004


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskPoint:
    """A point of the curve. gb_per_s: in 10**9 bytes."""

    read_size: ReadSize
    gb_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRate:
    """gb_per_s: the best of the curve, in 10**9 bytes; chunk_bytes, depth: the requests that are chosen for it.

    is_direct: past the page cache (else refused by the system: it may be memory's rate). is_chosen: the curve was
    measured; False: the file is too small for it, and the requests are the default ones.
    """

    path: str
    gb_per_s: float
    is_direct: bool
    chunk_bytes: int
    depth: int
    is_chosen: bool


def choose(curve: Sequence[DiskPoint]) -> DiskPoint:
    """Of the points that last for AHEAD_S, or of all if none does: the fewest bytes under way, then the smaller depth,
    whose rate is within TOLERANCE of the best of them.
    """
    best = max(point.gb_per_s for point in curve)
    lasting = [point for point in curve if point.read_size.num_bytes >= best * 1e9 * AHEAD_S] or curve
    least = (1 - TOLERANCE) * max(point.gb_per_s for point in lasting)
    fast = (point for point in lasting if point.gb_per_s >= least)
    return min(fast, key=lambda point: (point.read_size.num_bytes, point.read_size.depth))


def measure_disk(path: Path | None = None) -> DiskRate:
    """Reads `path`, a file or a folder (then 128 MiB of a file made there; None: the temporary folder), for a second.

    Raises DeviceError where that cannot be read or written.
    """
    place = Path(tempfile.gettempdir()) if path is None else path
    try:
        if place.is_file():
            return _measure(place, place)
        with tempfile.NamedTemporaryFile(dir=place, prefix="edgert-disk-") as file:
            block = os.urandom(1 << 20)
            for _ in range(SAMPLE_BYTES // len(block)):
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
    num_bytes = file.stat().st_size
    if num_bytes < SECTOR_BYTES:
        raise DeviceError(
            f"disk rate of {shown}: found a file of {num_bytes} bytes, expected at least {SECTOR_BYTES}; "
            "name another one"
        )
    sizes = READ_SIZES if num_bytes >= SAMPLE_BYTES else (DEFAULT_READ_SIZE,)
    # Twice where there is enough: what others read meanwhile slows one of the two, seldom both.
    num_rounds = 2 if num_bytes >= 2 * SAMPLE_BYTES else 1
    reads = sizes * num_rounds
    # Other bytes for each: what a disk keeps of those that it has read would make the next point faster.
    share_bytes = num_bytes // len(reads) // SECTOR_BYTES * SECTOR_BYTES
    rates = dict.fromkeys(sizes, 0.0)
    is_direct = True
    for i, size in enumerate(reads):
        rate, is_direct = _core.read_rate(
            os.path.realpath(file),
            offset=i * share_bytes,
            num_bytes=share_bytes,
            most_s=POINT_S / num_rounds,
            chunk_bytes=size.chunk_bytes,
            depth=size.depth,
        )
        rates[size] = max(rates[size], rate)
    curve = [DiskPoint(read_size=size, gb_per_s=rate / 1e9) for size, rate in rates.items()]
    chosen = choose(curve).read_size
    return DiskRate(
        path=str(shown),
        gb_per_s=max(point.gb_per_s for point in curve),
        is_direct=is_direct,
        chunk_bytes=chosen.chunk_bytes,
        depth=chosen.depth,
        is_chosen=len(curve) > 1,
    )
