"""Which requests weights are read with: the default ones, or those that a disk was measured to want, kept in a file."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgert import _core
from edgert.device.cache import cache_folder, read_json, write_json

if TYPE_CHECKING:
    from edgert.device.disk import DiskRate

_FILE_VERSION = 1
# A system may number the same disk anew each time that it is mounted: the oldest are forgotten.
MAX_DISKS = 64
# Of the rate at which a choice was measured: a slower measurement was disturbed, and says nothing of the disk.
MIN_RATE_SHARE = 0.9
MAX_GB_PER_S = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSize:
    """How the disk is asked: at most `depth` requests of at most chunk_bytes at a time."""

    chunk_bytes: int
    depth: int

    @property
    def num_bytes(self) -> int:
        """That are under way."""
        return self.chunk_bytes * self.depth


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """The requests that were chosen, and the best rate of their measurement."""

    size: ReadSize
    gb_per_s: float


DEFAULT_READ_SIZE = ReadSize(chunk_bytes=_core.DEFAULT_CHUNK_BYTES, depth=_core.DEFAULT_DEPTH)
# What is measured: at most 16 MiB under way, which the buffers of a load and of a stream hold. Never one request alone:
# the disk would rest until the reader's thread asks again, which takes longer while others compute than it is measured.
READ_SIZES = tuple(
    ReadSize(chunk_bytes=chunk_bytes, depth=depth)
    for chunk_bytes, depth in (
        (256 << 10, 2),
        (256 << 10, 4),
        (256 << 10, 16),
        (1 << 20, 2),
        (1 << 20, 4),
        (1 << 20, 8),
        (1 << 20, 16),
        (2 << 20, 8),
    )
)


def disks_file(environment: Mapping[str, str] | None = None) -> Path | None:
    """Where the choices are kept; None without a home folder."""
    folder = cache_folder(environment)
    return None if folder is None else folder / "disks.json"


def read_size_for(disks: Path | None, file: Path) -> ReadSize:
    """What was chosen for the disk on which `file` lies; the default where nothing was."""
    with suppress(OSError):
        if choice := _read(disks).get(_disk_of(file)):
            return choice.size
    return DEFAULT_READ_SIZE


def keep_choice(disks: Path | None, rate: DiskRate) -> None:
    """Puts what was chosen into the file beside other disks; silently not, where it cannot be written.

    Nothing that was not chosen, and nothing that was read through the page cache, is kept; nor does a measurement that
    something else slowed replace a faster one.
    """
    if disks is None or not (rate.is_chosen and rate.is_direct):
        return
    with suppress(OSError):
        disk = _disk_of(Path(rate.path))
        choices = _read(disks)
        before = choices.pop(disk, None)
        if before is not None and rate.gb_per_s < MIN_RATE_SHARE * before.gb_per_s:
            return
        size = ReadSize(chunk_bytes=rate.chunk_bytes, depth=rate.depth)
        choices[disk] = _Choice(size=size, gb_per_s=rate.gb_per_s)
        newest = list(choices.items())[-MAX_DISKS:]
        write_json(
            disks,
            {
                "edgert_disks": _FILE_VERSION,
                "disks": {name: [one.size.chunk_bytes, one.size.depth, one.gb_per_s] for name, one in newest},
            },
        )


def _disk_of(path: Path) -> str:
    return str(path.stat().st_dev)


def _read(disks: Path | None) -> dict[str, _Choice]:
    """Only what could have been chosen; nothing where the file is missing, broken, or not ours."""
    # Whatever the file holds: a choice changes no result, only how fast it comes.
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        if disks is not None:
            found = read_json(disks)
            if found["edgert_disks"] == _FILE_VERSION:
                return {
                    name: _Choice(size=size, gb_per_s=float(gb_per_s))
                    for name, (chunk_bytes, depth, gb_per_s) in found["disks"].items()
                    for size in READ_SIZES
                    if (size.chunk_bytes, size.depth) == (chunk_bytes, depth) and 0 < gb_per_s < MAX_GB_PER_S
                }
    return {}
