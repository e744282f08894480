"""How fast is edgert in a memory group that is smaller than its model, against llama.cpp? The same GGUF file, in turns.

Each run is a process in a control group whose limit is a share of the file: what it allocates counts, and what it
leaves in the page cache, as on a machine with so much memory. edgert gets --ram a little below the limit. llama.cpp
maps the file, and makes no copies in other layouts, for which the limit has no room. The file leaves the page cache
before each run. Needs root (Linux, control groups v1 or v2).

    python benchmarks/budget_peer.py --models FOLDER --peer-python PEER --check
    python benchmarks/budget_peer.py llama-8b/q4_0_m --shares 0.5 --models FOLDER --peer-python PEER
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from _common import HERE, markdown_table, report
from _disk import evict, model_files, num_bytes, read_rate
from _duel import made, median
from _memory_group import MemoryGroup, run

CASES = ["llama-8b/q4_0_m", "moe-8l/q4_0_m", "moe-8l/q4_k_m"]
PROMPT_TOKENS = 4
# The first token after the prompt finds memory in another state than those that follow.
FIRST_STEADY = 2
# For what the kernel charges to the group beside the resident set: page tables, buffers.
MARGIN_BYTES = 16 << 20
DENSE_BARS = {1.0: 1.0, 0.5: 2.4, 0.25: 1.7}
MIXTURE_BARS = {0.5: 6.0, 0.25: 15.0}
# Of the floor, the longer of disk and compute: reaches the bar of a dense model at this share of its file as well.
FLOOR_BAR, FLOOR_BAR_SHARE = 0.87, 0.25


def measure(name: str, model: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each size of the group."""
    files = model_files(model)
    default = MIXTURE_BARS if name.startswith("moe") else DENSE_BARS
    limits = {share: int(share * num_bytes(files)) for share in arguments.shares or default}
    ours: dict[float, list[dict[str, Any]]] = {share: [] for share in limits}
    theirs: dict[float, list[dict[str, Any]]] = {share: [] for share in limits}
    rates: list[float] = []
    compute: list[dict[str, Any]] = []
    basis = [str(model), str(arguments.threads), str(PROMPT_TOKENS), str(FIRST_STEADY + arguments.tokens)]
    for _ in range(arguments.rounds):
        compute.append(one_run([sys.executable, str(HERE / "_budget_ours.py"), *basis], files, None))
        for share, limit_bytes in limits.items():
            rates.append(read_rate(files[0], arguments.disk_seconds))
            ram_bytes = limit_bytes - MARGIN_BYTES
            command = [sys.executable, str(HERE / "_budget_ours.py"), *basis, str(ram_bytes)]
            ours[share].append(one_run(command, files, limit_bytes))
            if arguments.peer_python:
                command = [arguments.peer_python, str(HERE / "_peer.py"), "mapped", *basis]
                theirs[share].append(one_run(command, files, limit_bytes))
        rates.append(read_rate(files[0], arguments.disk_seconds))
    rate, compute_s = median(rates), median([one["steady_s"] for one in compute if not one["failure"]])
    return [
        row(name, share, limit_bytes, ours[share], theirs[share], rate, compute_s)
        for share, limit_bytes in limits.items()
    ]


def one_run(command: Sequence[str], files: Sequence[Path], limit_bytes: int | None) -> dict[str, Any]:
    """Steady seconds and bytes of a token, or the failure; in a group of its own where there is a limit."""
    evict(files)
    with ExitStack() as stack:
        group = None if limit_bytes is None else stack.enter_context(MemoryGroup(limit_bytes))
        ended = run(command, enter=group.enter if group else None)
        about = {"failure": ended.failure, "peak_bytes": ended.peak_bytes}
        if group is not None:
            about |= {"group_peak_bytes": group.peak_bytes, "num_kills": group.num_kills}
    if ended.failure:
        return about
    marks = json.loads(ended.out.splitlines()[-1])
    times, sums = marks["token_s"][FIRST_STEADY:], marks["token_read_bytes"][FIRST_STEADY:]
    return about | marks | {"steady_s": sum(times) / len(times), "steady_read_bytes": sum(sums) / len(sums)}


def row(
    name: str, share: float, limit_bytes: int, ours: list[dict[str, Any]], theirs: list[dict[str, Any]], rate: float,
    compute_s: float,
) -> dict[str, Any]:  # fmt: skip
    token_s, read_bytes, peer_s, peer_bytes = (
        median([one[key] for one in side if not one["failure"]])
        for side in (ours, theirs)
        for key in ("steady_s", "steady_read_bytes")
    )
    return {
        "case": name, "share": share, "limit_bytes": limit_bytes, "tokens_per_s": 1 / token_s,
        "peer_tokens_per_s": 1 / peer_s, "ratio": peer_s / token_s, "read_bytes": read_bytes,
        "peer_read_bytes": peer_bytes, "disk_bytes_per_s": rate, "compute_s": compute_s,
        "floor_share": max(read_bytes / rate, compute_s) / token_s,
        "failures": [one["failure"] for one in ours if one["failure"]],
        "peer_failures": [one["failure"] for one in theirs if one["failure"]], "runs": ours, "peer_runs": theirs,
    }  # fmt: skip


def asked(one: dict[str, Any]) -> float | None:
    return (MIXTURE_BARS if one["case"].startswith("moe") else DENSE_BARS).get(one["share"])


def missed(one: dict[str, Any]) -> list[str]:
    """The bars that this size does not reach, in words."""
    if one["failures"]:
        return one["failures"]
    bar = asked(one)
    is_at_floor = one["share"] == FLOOR_BAR_SHARE and one["floor_share"] >= FLOOR_BAR
    if bar is not None and one["ratio"] < bar and not is_at_floor:
        return [f"ratio {one['ratio']:.2f} < {bar}"]
    return []


def cells(one: dict[str, Any]) -> list[str]:
    bar = asked(one)
    return [
        one["case"], f"{one['limit_bytes'] / 2**20:.0f}", f"{one['share']:.0%}", f"{one['tokens_per_s']:.2f}",
        f"{one['peer_tokens_per_s']:.2f}", f"{one['ratio']:.2f}", "" if bar is None else f"{bar:g}",
        f"{one['read_bytes'] / 1e6:.0f}", f"{one['peer_read_bytes'] / 1e6:.0f}",
        f"{one['disk_bytes_per_s'] / 1e6:.0f}", f"{1e3 * one['compute_s']:.1f}", f"{100 * one['floor_share']:.0f} %",
        "; ".join(dict.fromkeys([*(f"edgert: {text}" for text in one["failures"]),
                                 *(f"llama.cpp: {text}" for text in one["peer_failures"])])),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=CASES, metavar="CASE", help="a GGUF file, or SHAPE/FORMAT")
    parser.add_argument(
        "--models", type=Path, help="folder where synthesised models are kept (default: a temporary one)"
    )
    parser.add_argument(
        "--shares", type=float, nargs="+", help="sizes of the group / size of the file (default: of the bars)"
    )
    parser.add_argument("--peer-python", help="Python with llama-cpp-python; without it only edgert is measured")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=8, help="timed tokens of each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--disk-seconds", type=float, default=2.0, help="of reading before each pair of runs")
    parser.add_argument("--check", action="store_true", help="exit code 1 where a bar is missed")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        found = [made(text, arguments.models or Path(scratch)) for text in arguments.cases]
        rows = [one for case in found for one in measure(case.name, case.ours, arguments)]
    failures = [f"{one['case']} at {one['share']:.0%}: {what}" for one in rows for what in missed(one)]
    verdict = [f"missed: {'; '.join(failures)}" if failures else "every bar that was measured is reached"]
    header = [
        "case", "group MiB", "of the file", "tokens/s", "llama.cpp", "ratio", "asked", "MB read/token", "llama.cpp",
        "disk MB/s", "compute ms", "of the floor's rate", "failures",
    ]  # fmt: skip
    table = markdown_table(header, [cells(one) for one in rows])
    report({"rows": rows, "missed": failures}, table + verdict, as_json=arguments.json)
    sys.exit(arguments.check and bool(failures))


if __name__ == "__main__":
    main()
