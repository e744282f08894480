"""How many threads are worth using: physical cores, within the process's affinity and its CPU quota."""

from __future__ import annotations

import math
import os
from pathlib import Path

from edgert.device.memory import cgroup_folders

_CPUS = Path("/sys/devices/system/cpu")


def usable_cpus() -> int:
    """Logical CPUs that the process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def default_threads() -> int:
    """One thread for each physical core: a second one on the same core adds no bandwidth."""
    return max(1, min(physical_cores(), usable_cpus(), cpu_quota(cgroup_folders())))


def physical_cores(root: Path = _CPUS) -> int:
    """Cores of the machine; where it does not tell them apart, logical CPUs."""
    # Linux: read here, as importing psutil takes as long as a small model. CPUs of one core have the same list.
    lists = set()
    for path in root.glob("cpu[0-9]*/topology/core_cpus_list"):
        try:
            lists.add(path.read_text(encoding="ascii"))
        except OSError:
            continue
    if lists:
        return len(lists)
    import psutil

    return psutil.cpu_count(logical=False) or usable_cpus()


def cpu_quota(folders: list[Path]) -> int:
    """CPUs that the control groups grant, rounded up; a large number without a quota."""
    quota = float(2**16)
    for folder in folders:
        v2 = _numbers(folder / "cpu.max")
        v1 = _numbers(folder / "cpu.cfs_quota_us") + _numbers(folder / "cpu.cfs_period_us")
        for numbers in (v2, v1):
            if len(numbers) == 2 and min(numbers) > 0:
                quota = min(quota, numbers[0] / numbers[1])
    return math.ceil(quota)


def _numbers(path: Path) -> list[int]:
    try:
        words = path.read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return []
    return [int(word) for word in words if word.lstrip("-").isdigit()]
