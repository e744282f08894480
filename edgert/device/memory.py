"""How much memory the process may still take: the machine's, and that of its control groups."""

from __future__ import annotations

import mmap
from pathlib import Path

_MEMORY = Path("/proc/meminfo")
_CGROUP_ROOT = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_SMAPS = Path("/proc/self/smaps_rollup")
_STATM = Path("/proc/self/statm")
_HUGE_PAGE_BYTES = 2 << 20


def total_bytes() -> int:
    """Bytes of the machine's memory."""
    return _memory("MemTotal", "total")


def available_bytes() -> int:
    """Bytes that can be allocated without swapping, within the limits of the control groups."""
    free = machine_available_bytes()
    limit = cgroup_available_bytes()
    return free if limit is None else min(free, limit)


def resident_bytes() -> int:
    """Bytes of this process that are in memory now."""
    pages = _read(_STATM).split()[1:2]
    if pages and pages[0].isdigit():
        return int(pages[0]) * mmap.PAGESIZE
    import psutil

    return int(psutil.Process().memory_info().rss)


def machine_available_bytes() -> int:
    """Bytes that the machine can give without swapping, whatever the control groups allow."""
    return _memory("MemAvailable", "available")


def cgroup_available_bytes(root: Path = _CGROUP_ROOT, own: Path = _OWN_CGROUPS) -> int | None:
    """Bytes left below the tightest memory limit of the process's control groups (v1 or v2); None without a limit."""
    left = [room for folder in cgroup_folders(root, own) if (room := _room(folder)) is not None]
    return min(left, default=None)


def cgroup_folders(root: Path = _CGROUP_ROOT, own: Path = _OWN_CGROUPS) -> list[Path]:
    """Folders of the control groups that hold the process, from its own to the root: v2, and v1's memory and cpu."""
    folders: list[Path] = []
    for line in _read(own).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        names = [name for name in controllers.split(",") if name in ("memory", "cpu")]
        if controllers and not names:
            continue
        for base in [root / name for name in names] or [root]:
            folder = base / path.lstrip("/")
            # Inside a container the path may be the host's; what is mounted then lies at the root.
            folders += [f for f in (folder, *folder.parents) if f == base or base in f.parents]
    return list(dict.fromkeys(folders))


def huge_pages() -> str:
    """The system's setting for transparent huge pages: "always", "madvise", "never", or "unknown"."""
    text = _read(_HUGE_PAGES)
    return text[text.find("[") + 1 : text.find("]")] if "[" in text else "unknown"


def grants_huge_pages() -> bool | None:
    """Whether memory that asks for huge pages, as the weights' does, gets them now; None where that cannot be told."""
    if not hasattr(mmap, "MADV_HUGEPAGE") or not _SMAPS.exists():
        return None
    before = _huge_bytes()
    # Room for whole pages wherever the mapping begins.
    with mmap.mmap(-1, 4 * _HUGE_PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for offset in range(0, len(memory), mmap.PAGESIZE):
            memory[offset] = 1
        return _huge_bytes() > before


def _huge_bytes() -> int:
    """Bytes of this process in anonymous huge pages."""
    kilobytes = [line.split()[1] for line in _read(_SMAPS).splitlines() if line.startswith("AnonHugePages:")]
    return sum(int(number) * 1024 for number in kilobytes if number.isdigit())


def _memory(kernel_name: str, name: str) -> int:
    """A figure of the machine's memory in bytes."""
    # Linux: read here, as importing psutil takes as long as opening a small model.
    for line in _read(_MEMORY).splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == f"{kernel_name}:" and words[1].isdigit() and words[2] == "kB":
            return int(words[1]) * 1024
    import psutil

    return int(getattr(psutil.virtual_memory(), name))


def _room(folder: Path) -> int | None:
    """Bytes below this group's own limit; pages of files that nobody uses count as free."""
    for limit_file, used_file, cache_key in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit = _read(folder / limit_file).strip()
        used = _read(folder / used_file).strip()
        # v1 writes a number near 2**63 where v2 writes "max".
        if limit.isdigit() and used.isdigit() and int(limit) < 2**60:
            return max(0, int(limit) - int(used) + _stat(folder / "memory.stat", cache_key))
    return None


def _stat(path: Path, key: str) -> int:
    for line in _read(path).splitlines():
        name, _, value = line.partition(" ")
        if name == key and value.strip().isdigit():
            return int(value)
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
