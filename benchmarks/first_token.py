"""How long is it from `edgert run "hi"` to the first token with the model that comes along, and how much are imports?

Each round starts three processes one after another: the command, timed from its start to its first byte on stdout; a
process that imports, in the same order, all modules of edgert that the command has imported by then, and what they
import; and a bare interpreter. Import time is the second less the third. Bytecode is kept between the rounds, as for an
installed package. Medians over the rounds; run it on a quiet machine. With --model another model answers.

    python benchmarks/first_token.py
    python benchmarks/synth.py llama-1b llama-1b-p4 --format p4 --tokenizer FOLDER
    python benchmarks/first_token.py --model llama-1b-p4
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _common import import_tree, report

import_tree()

PROGRAM = "from edgert.cli import main; main()"
# The command once more, within a process that says which modules it had when it first wrote to stdout.
LIST_MODULES = """
import sys
from edgert.cli import answers, run_command
answers.show_text = lambda text: sys.exit(print("\\n".join(sys.modules), flush=True))
run_command(["run", "hi"])
"""
BOUND_S, MODEL_BOUND_S, IMPORT_BOUND_S = 0.35, 0.5, 0.2


def time_first_byte(arguments: list[str]) -> float:
    """Seconds from the start of the process to its first byte on stdout; without output, to its end."""
    begin = time.perf_counter()
    process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    os.read(process.stdout.fileno(), 1)
    elapsed_s = time.perf_counter() - begin
    process.communicate()
    if process.returncode != 0:
        sys.exit(f"{arguments}: exit code {process.returncode}")
    return elapsed_s


def imported_modules() -> list[str]:
    """Modules of edgert in the order in which the command imports them up to the first token."""
    run = subprocess.run(
        [sys.executable, "-c", LIST_MODULES], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return [name for name in run.stdout.split() if name.startswith("edgert")]


def measure(rounds: int, model: Path | None) -> dict[str, Any]:
    names = imported_modules()
    imports = f"from edgert.cli import start_quickly\nstart_quickly()\nimport {', '.join(names)}"
    kinds = {"first_token": PROGRAM, "imports": f"{imports}\nprint(1)", "bare": "print(1)"}
    question = ["-p", "hi", "--raw", "-n", "1", "-m", str(model)] if model else ["hi"]
    bound_s = MODEL_BOUND_S if model else BOUND_S
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(rounds + 1):
        for kind, program in kinds.items():
            extra = ["run", *question] if kind == "first_token" else []
            elapsed_s = time_first_byte([sys.executable, "-c", program, *extra])
            if number:  # the first round reads files into the page cache
                times[kind].append(elapsed_s)
    medians = {kind: statistics.median(values) for kind, values in times.items()}
    return {
        "first_token_s": medians["first_token"],
        "imports_s": medians["imports"] - medians["bare"],
        "interpreter_s": medians["bare"],
        "rounds": rounds,
        "first_token_times_s": times["first_token"],
        "load_average": os.getloadavg()[0],
        "bound_s": bound_s,
        "is_within": medians["first_token"] <= bound_s and medians["imports"] - medians["bare"] <= IMPORT_BOUND_S,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="default: the one that comes along")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    result = measure(arguments.rounds, arguments.model)
    lines = [
        f"interpreter {result['interpreter_s']:.3f} s, imports {result['imports_s']:.3f} s, "
        f"load average {result['load_average']:.1f}",
        f"first token {result['first_token_s']:.3f} s from the start of the process, median of {result['rounds']} "
        f"(fastest {min(result['first_token_times_s']):.3f}); bounds {result['bound_s']} and {IMPORT_BOUND_S} s: "
        f"{'within' if result['is_within'] else 'beyond'}",
    ]
    report(result, lines, as_json=arguments.json)


if __name__ == "__main__":
    main()
