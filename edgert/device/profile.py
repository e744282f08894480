"""The machine as one value: what it is, and how fast it is."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from edgert import _core
from edgert.device.bandwidth import bandwidth_by_threads, thread_counts
from edgert.device.disk import DiskRate, measure_disk
from edgert.device.isa import select_isa
from edgert.device.memory import available_bytes, cgroup_available_bytes, grants_huge_pages, huge_pages, total_bytes
from edgert.device.threads import default_threads, usable_cpus

PACKAGES = ("edgert", "numpy", "tokenizers", "jinja2", "safetensors", "typer", "psutil")


@dataclass(frozen=True, slots=True, kw_only=True)
class IsaLevel:
    """An instruction set level: whether this build has it, whether this CPU has it."""

    name: str
    is_built: bool
    is_supported: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProfile:
    """What was found. Bytes are bytes, GB are 10**9; kernels maps each weight format to the level that computes it."""

    cpu: str
    system: str
    logical_cpus: int
    default_threads: int
    isa: str
    isa_levels: tuple[IsaLevel, ...]
    kernels: dict[str, str]
    total_bytes: int
    available_bytes: int
    cgroup_available_bytes: int | None
    huge_pages: str
    grants_huge_pages: bool | None
    bandwidth_gb_per_s: dict[int, float]
    disk: DiskRate
    versions: dict[str, str]


def measure_device(disk_path: Path | None = None, *, progress: Callable[[str], None] = lambda _: None) -> DeviceProfile:
    """Looks and measures, in a few seconds; progress(what) says what is being done.

    Raises DeviceError for a wrong EDGERT_ISA, or a disk path that cannot be used.
    """
    isa = select_isa()
    progress("reading memory")
    bandwidth = bandwidth_by_threads(thread_counts(default_threads()))
    progress("reading the disk")
    disk = measure_disk(disk_path)
    return DeviceProfile(
        cpu=_core.cpu_name(),
        system=platform.platform(),
        logical_cpus=usable_cpus(),
        default_threads=default_threads(),
        isa=isa,
        isa_levels=tuple(
            IsaLevel(name=name, is_built=is_built, is_supported=is_supported)
            for name, is_built, is_supported in _core.isa_levels()
        ),
        kernels=dict(_core.kernels_in_use(isa)),
        total_bytes=total_bytes(),
        available_bytes=available_bytes(),
        cgroup_available_bytes=cgroup_available_bytes(),
        huge_pages=huge_pages(),
        grants_huge_pages=grants_huge_pages(),
        bandwidth_gb_per_s=bandwidth,
        disk=disk,
        versions={"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
