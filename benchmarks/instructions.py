"""Which share of a decode step's instructions is in kernels? Counted by callgrind (valgrind), one thread, at avx2.

Only what runs inside Runtime::step counts; a kernel is a function in the namespace of an instruction set. Valgrind
knows no AVX-512, so EDGERT_ISA is avx2. A small model has the largest share of everything else.

    python benchmarks/instructions.py                 the bundled model
    python benchmarks/instructions.py --model MODEL --steps 4 --check
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from _common import HERE, import_tree, report

import_tree()
from edgert.llm import DEFAULT_MODEL  # noqa: E402

ASKED = 0.95
# Levels that fall back to scalar for something have kernels in both namespaces.
KERNEL = re.compile(r"\bedgert::(scalar|avx2|neon|neon_dotprod)::")


def count_instructions(model: Path, steps: int) -> Counter[str]:
    """Function -> instructions inside the steps, by itself. Raises OSError where valgrind fails."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "callgrind.out"
        command = [
            "valgrind", "--tool=callgrind", "--toggle-collect=edgert::Runtime::step(*", f"--callgrind-out-file={out}",
            sys.executable, str(HERE / "_ours.py"), "serve", str(model), "1", "0",
        ]  # fmt: skip
        environment = {**os.environ, "EDGERT_ISA": "avx2"}
        question = f'["steps", {steps}]\n'
        run = subprocess.run(command, input=question, capture_output=True, text=True, env=environment)
        if run.returncode != 0 or not out.exists():
            raise OSError(f"{shlex.join(command)}: exit code {run.returncode}\n{run.stderr[-2000:]}")
        return own_costs(out.read_text())


def own_costs(profile: str) -> Counter[str]:
    """Sums the lines of a callgrind profile by function; the line after calls= is the callee's cost."""
    names: dict[str, str] = {}
    costs: Counter[str] = Counter()
    function, is_callee = "", False
    for line in profile.splitlines():
        if found := re.match(r"(c?)fn=(\(\d+\))(?: (.*))?$", line):
            is_called, key, name = found.groups()
            if name:
                names[key] = name
            if not is_called:
                function = names[key]
        elif line.startswith("calls="):
            is_callee = True
        elif re.match(r"[0-9+*-]", line):
            if not is_callee:
                costs[function] += int(line.split()[1])
            is_callee = False
    return costs


def kernel_share(costs: Counter[str]) -> float:
    """Instructions in kernels over all."""
    return sum(count for name, count in costs.items() if KERNEL.search(name)) / costs.total()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--check", action="store_true", help=f"exit code 1 below {ASKED}")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("valgrind: found none, expected it in PATH; install it with the system's package manager")
    costs = count_instructions(arguments.model, arguments.steps)
    if not costs:
        sys.exit("callgrind: found no instructions inside Runtime::step; build with symbols (make dev)")
    share, total = kernel_share(costs), costs.total()
    lines = [
        f"{100 * count / total:5.1f} %  {'kernel' if KERNEL.search(name) else '      '}  {name[:96]}"
        for name, count in costs.most_common(16)
    ]
    lines.append(f"{100 * share:.1f} % of the instructions of a step are in kernels (asked {100 * ASKED:.0f} %)")
    report({"share": share, "functions": dict(costs)}, lines, as_json=arguments.json)
    sys.exit(arguments.check and share < ASKED)


if __name__ == "__main__":
    main()
