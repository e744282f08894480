"""`edgert doctor`: what this machine is, and how fast it is."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgert.cli import options
from edgert.cli.terminal import StatusLine, notice

if TYPE_CHECKING:
    from edgert.device.kernels import KernelChoice
    from edgert.device.profile import DeviceProfile


_GRANTED = {True: ", granted", False: ", not granted: the weights lie in small pages", None: ""}


def doctor(
    disk: Annotated[
        Path | None,
        typer.Option(
            "--disk", metavar="PATH", help="Folder or file whose disk is measured. Default: the temporary folder."
        ),
    ] = None,
    kernels: Annotated[
        bool,
        typer.Option("--kernels", help="Show which kernels were chosen on this CPU instead, and how fast each is."),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show the CPU, memory and disk as edgert uses and measures them.

    \b
    Examples:
      edgert doctor --disk .
      edgert doctor --kernels
    """
    if kernels:
        return show_kernels(as_json=as_json)
    from edgert.device.profile import measure_device
    from edgert.device.read_size import disks_file, keep_choice

    doing = ["looking at the machine"]
    with StatusLine(lambda: doing[-1]):
        profile = measure_device(disk, progress=doing.append)
    keep_choice(disks_file(), profile.disk)
    if as_json:
        print(json.dumps(asdict(profile)))
    else:
        print("\n".join(report(profile)))


def show_kernels(*, as_json: bool) -> None:
    """The choices that are kept for this CPU. Raises DeviceError for a wrong EDGERT_KERNEL or EDGERT_ISA."""
    from edgert.device.isa import select_isa
    from edgert.device.kernels import cache_file, read_choices, select_kernel

    forced = select_kernel(select_isa())
    path = cache_file()
    choices = read_choices(path)
    if as_json:
        print(json.dumps({"file": str(path) if path else None, "choices": [asdict(choice) for choice in choices]}))
        return
    if forced:
        notice(f"EDGERT_KERNEL forces {forced}: what was measured is not used")
    if not choices:
        notice(f"{path}: no kernels of this build were measured yet; run a model while the machine is quiet")
        return
    print("\n".join(kernel_table(choices)))


def kernel_table(choices: list[KernelChoice]) -> list[str]:
    """One line for each choice, the fastest candidate first, in microseconds of one product."""
    from edgert.device.kernels import token_class

    lines = [
        f"{'level':10} {'threads':>7} {'format':6} {'rows x cols':>14} {'tokens':>6}  kernel: microseconds of each"
    ]
    for choice in sorted(choices, key=lambda choice: choice.key):
        times = sorted(choice.seconds.items(), key=lambda item: item[1])
        lines.append(
            f"{choice.isa:10} {choice.threads:7d} {choice.format:6} {f'{choice.rows} x {choice.cols}':>14} "
            f"{token_class(choice.tokens):>6}  {choice.kernel}: "
            + ", ".join(f"{name} {seconds * 1e6:.1f}" for name, seconds in times)
        )
    return lines


def report(profile: DeviceProfile) -> list[str]:
    """The profile as lines of text."""
    from edgert.offload.sizes import format_bytes

    usable = [level.name for level in profile.isa_levels if level.is_built and level.is_supported]
    left_out = [level.name for level in profile.isa_levels if not level.is_built and level.is_supported]
    formats: dict[str, list[str]] = {}
    for name, level in profile.kernels.items():
        formats.setdefault(level, []).append(name)
    limit = profile.cgroup_available_bytes
    disk = profile.disk
    rows = [
        ("CPU", profile.cpu),
        ("system", profile.system),
        ("threads", f"{profile.default_threads} by default, {profile.logical_cpus} logical CPUs"),
        ("instructions", f"{profile.isa}; usable: {', '.join(usable)}"),
        ("left out", ", ".join(left_out) + " (the compiler of this build lacks them)" if left_out else "nothing"),
        *((f"kernels {level}", " ".join(names)) for level, names in formats.items()),
        (
            "memory",
            f"{profile.available_bytes / 1e9:.1f} of {profile.total_bytes / 1e9:.1f} GB free"
            + (f", {limit / 1e9:.1f} GB below the control group's limit" if limit is not None else ""),
        ),
        ("huge pages", profile.huge_pages + _GRANTED[profile.grants_huge_pages]),
        *(
            (f"read, {threads} thread{'s' if threads > 1 else ''}", f"{rate:.1f} GB/s")
            for threads, rate in profile.bandwidth_gb_per_s.items()
        ),
        (
            "disk",
            f"{disk.gb_per_s:.2f} GB/s at {disk.path}, "
            f"in requests of {format_bytes(disk.chunk_bytes)}, {disk.depth} at a time"
            + ("" if disk.is_direct else " (through the page cache: this may be memory's rate)"),
        ),
        ("versions", ", ".join(f"{name} {number}" for name, number in profile.versions.items())),
    ]
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {text}" for name, text in rows]
