"""What `--ram auto` means: as much memory as leaves room for the rest of the system."""

from __future__ import annotations

LEFT_SHARE = 0.10
LEFT_BYTES = 512 << 20
# Of machines below 2 GiB, where 512 MiB would be too much.
LEFT_SHARE_OF_SMALL = 0.25
# A control group kills what goes beyond its limit, so not all of its room is used.
CGROUP_SHARE = 15 / 16


def auto_budget(total_bytes: int, available_bytes: int, cgroup_available_bytes: int | None) -> int:
    """The budget in bytes, at least 0.

    total_bytes: the machine's memory. available_bytes: what it can give without swapping. cgroup_available_bytes: room
    below the tightest limit of the process's control groups; None without one.
    """
    left = max(LEFT_SHARE * total_bytes, min(LEFT_BYTES, LEFT_SHARE_OF_SMALL * total_bytes))
    budget = max(0, int(available_bytes - left))
    return budget if cgroup_available_bytes is None else min(budget, int(cgroup_available_bytes * CGROUP_SHARE))
