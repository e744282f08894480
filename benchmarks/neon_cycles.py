"""Which formats would decode at the memory's limit on a Raspberry Pi? Cycles of the one-token kernels by llvm-mca.

No such machine is needed: the loop over groups of each kernel is taken from what the compiler makes of
csrc/kernels/isa/neon_dotprod.cpp (Cortex-A76, Raspberry Pi 5) and neon.cpp (Cortex-A72, Raspberry Pi 4), and llvm-mca
says how many cycles it takes for a group of 16 rows x 64 columns when all its data is in the first-level cache. Beside
it stand the cycles that the cores have while the memory delivers the bytes of that group. Where llvm takes a narrower
core for one that it does not know (the A57 for the A76), the table also has the nearest that it knows (the Neoverse N1
is an A76 for servers). Needs `make digests` and llvm-mca.

    python benchmarks/neon_cycles.py
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _common import ROOT, import_tree, report

import_tree()
from edgert.quant import format as formats  # noqa: E402

GROUP_WEIGHTS = 1024
ITERATIONS = 200


@dataclass(frozen=True, slots=True)
class Board:
    name: str
    isa: str
    cpu: str
    twin: str  # a name under which llvm has a nearer model of the same core, or cpu again
    cores: int
    clock_ghz: float
    bandwidth_gb_s: float

    def budget(self, bits: float) -> float:
        """Cycles that each core has for a group while the memory delivers the groups of all of them."""
        group_bytes = bits / 8 * GROUP_WEIGHTS
        return group_bytes / self.bandwidth_gb_s * self.clock_ghz * self.cores


BOARDS = (
    Board("Raspberry Pi 5", "neon_dotprod", "cortex-a76", "neoverse-n1", cores=4, clock_ghz=2.4, bandwidth_gb_s=17.0),
    Board("Raspberry Pi 4", "neon", "cortex-a72", "cortex-a72", cores=4, clock_ghz=1.8, bandwidth_gb_s=4.0),
)


def published_bits(name: str) -> float:
    """Bits of a weight in the format as published: a GGUF block, or our file."""
    spec = formats.get(name).spec
    return 8.0 * spec.block_bytes / spec.block_columns if spec.block_columns else spec.bits


def assembly(isa: str, build: Path) -> str:
    """What the compiler of the build makes of the kernels of `isa`."""
    try:
        commands = json.loads((build / "compile_commands.json").read_text())
        entry = next(c for c in commands if c["file"].endswith(f"isa/{isa}.cpp"))
    except (OSError, StopIteration):
        sys.exit(f"{build}: found no compile command of {isa}.cpp, expected a build for aarch64; run `make digests`")
    words = shlex.split(entry["command"])
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "kernels.s"
        words[words.index("-o") + 1] = str(out)
        words[words.index("-c")] = "-S"
        subprocess.run(words, check=True, cwd=entry["directory"])
        # gcc writes a byte as a negative number of 64 bits, which llvm does not read.
        return re.sub(r"0xf{14}([0-9a-f]{2})\b", r"0x\1", out.read_text())


def one_token_loops(text: str) -> dict[str, list[str]]:
    """Class of the format -> the instructions of its loop over groups: the longest innermost loop of `linear_one` with
    one strip at a time (Li1E), or of `strips_times_token` where that is a function of its own."""
    loops: dict[str, list[str]] = {}
    kernel = r"^\w*(?:linear_one|strips_times_token)INS\d*_(\d+)([\w.]+):\n(.*?)^\s+\.size"
    for length, rest, body in re.findall(kernel, text, re.M | re.S):
        name, parameters = rest[: int(length)], rest[int(length) :]
        if not parameters.startswith("ELi1E"):
            continue
        loop = longest_innermost_loop(body.splitlines())
        if len(loop) > len(loops.get(name, [])):
            loops[name] = loop
    return loops


def longest_innermost_loop(lines: list[str]) -> list[str]:
    labels: dict[str, int] = {}
    longest: list[str] = []
    last_end = -1
    for i, line in enumerate(lines):
        if label := re.match(r"(\.L\w+):", line):
            labels[label[1]] = i
        branch = re.match(r"\s+(?:b\.?\w+|cbn?z|tbn?z)\s.*?(\.L\w+)\s*$", line)
        if branch and labels.get(branch[1], -1) > last_end:
            loop = [x for x in lines[labels[branch[1]] + 1 : i + 1] if re.match(r"\s+[a-z]", x)]
            last_end = i
            if len(loop) > len(longest):
                longest = loop
    return longest


def cycles(loop: list[str], cpu: str, mca: str) -> float:
    command = [mca, "-march=aarch64", f"-mcpu={cpu}", "-mattr=+dotprod", f"-iterations={ITERATIONS}"]
    run = subprocess.run(command, input="\n".join(loop) + "\n", capture_output=True, text=True)
    total = re.search(r"Total Cycles:\s+(\d+)", run.stdout)
    if total is None:
        sys.exit(f"{mca}: found no cycles in its answer, expected 'Total Cycles'; {run.stderr.strip()}")
    return int(total[1]) / ITERATIONS


def measure(board: Board, build: Path, mca: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    loops = {name.lower(): loop for name, loop in one_token_loops(assembly(board.isa, build)).items()}
    for name in sorted(set(formats.names()) & set(loops), key=lambda n: (published_bits(n), n)):
        bits = published_bits(name)
        rows.append(
            {
                "format": name,
                "bits": bits,
                "cycles": cycles(loops[name], board.cpu, mca),
                "twin_cycles": cycles(loops[name], board.twin, mca),
                "budget": board.budget(bits),
                "calls": sum(bool(re.match(r"\s+bl\s", line)) for line in loops[name]),
            }
        )
    return rows


def table(board: Board, rows: list[dict[str, Any]]) -> list[str]:
    about = f"{board.cores} {board.cpu} at {board.clock_ghz} GHz, {board.bandwidth_gb_s:g} GB/s, kernels {board.isa}"
    heads = ["format", "bits", *dict.fromkeys((board.cpu, board.twin)), "memory allows", "at the limit"]
    lines = [f"{board.name}: {about}", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for r in rows:
        counts = [r["cycles"]] if board.twin == board.cpu else [r["cycles"], r["twin_cycles"]]
        share = r["budget"] / r["twin_cycles"]
        verdict = "yes" if share >= 1 else f"{100 * share:.0f} %"
        if r["calls"]:
            verdict = f"not known: {r['calls']} calls are not counted"
        cells = [r["format"], f"{r['bits']:.4g}", *(f"{c:.0f}" for c in [*counts, r["budget"]]), verdict]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "neon", help="a build folder for aarch64")
    parser.add_argument("--mca", default="llvm-mca-19", help="the llvm-mca to run")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = {b.name: measure(b, arguments.build, arguments.mca) for b in BOARDS}
    lines = [line for board in BOARDS for line in table(board, results[board.name])]
    at_limit = [sum(r["twin_cycles"] <= r["budget"] for r in rows) for rows in results.values()]
    lines.append(
        ", ".join(
            f"{board.name}: {count} of {len(results[board.name])} formats at the memory's limit"
            for board, count in zip(BOARDS, at_limit, strict=True)
        )
    )
    report(results, lines, as_json=arguments.json)


if __name__ == "__main__":
    main()
