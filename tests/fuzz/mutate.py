"""Mutates valid models and opens them in child processes: each must run or be refused by an EdgertError, never end by
a signal, hang, or raise something else. A model that fails is kept, with the number that repeats it.

    python tests/fuzz/mutate.py --seconds 600 --seed 1 [--module FOLDER_OF_A_SANITISED_CORE]
    python tests/fuzz/mutate.py --count 200000 --jobs 2 ...
    python tests/fuzz/mutate.py --first 4711 --count 1 ...       one of them again
"""

import argparse
import collections
import concurrent.futures
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fuzz.mutations import mutation
from fuzz.open_models import BAD_SEEDS
from fuzz.seed_models import write_seeds

ROOT = Path(__file__).resolve().parents[2]
BATCH = 400  # mutations a child: it takes seconds to start under sanitizers


def library_path(name: str) -> str:
    """Where the compiler has a library of its own."""
    command = [os.environ.get("CXX", "g++"), f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


class Fuzzer:
    """Runs the children; counts what they say."""

    def __init__(self, arguments: argparse.Namespace, scratch: Path) -> None:
        self.answers: collections.Counter[str] = collections.Counter()
        self.faults: list[str] = []
        self._arguments = arguments
        self._seeds = scratch / "seeds"
        self._scratch = scratch
        self._seeds.mkdir()
        write_seeds(self._seeds, arguments.seed)
        self._command = [sys.executable, str(Path(__file__).with_name("open_models.py"))]
        self._environment = dict(os.environ)
        if arguments.module is not None:
            (core,) = arguments.module.glob("_core*.so")
            self._command += ["--core", str(core)]
            # libstdc++ too: the sanitizer looks for the functions that throw when the process begins.
            preload = " ".join(library_path(name) for name in ("libasan.so", "libstdc++.so.6"))
            self._environment |= {
                "LD_PRELOAD": preload, "PYTHONPATH": str(ROOT), "PYTHONMALLOC": "malloc",
                "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:hard_rss_limit_mb=3000",
                "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
            }  # fmt: skip

    def run(self, first: int, end: int) -> None:
        """Mutations [first, end) in one child, or in several where one ends by itself."""
        while first < end:
            with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
                numbers = [str(self._arguments.seed), str(first), str(end)]
                command = [*self._command, str(self._seeds), folder, *numbers]
                child = subprocess.run(command, capture_output=True, text=True, env=self._environment)
            if child.returncode == BAD_SEEDS:
                sys.exit(child.stderr)
            lines = child.stdout.splitlines()
            for number, line in enumerate(lines, start=first):
                self.answers[line.split(": ")[0]] += 1
                if line.startswith("fault"):
                    self._keep(number, line)
            first += len(lines)
            if child.returncode:
                tail = " | ".join(child.stderr.strip().splitlines()[-3:])[:400]
                self.answers["fault"] += 1
                self._keep(first, f"exit code {child.returncode}: {tail}")
                first += 1
            elif first < end:
                raise RuntimeError(f"the child ended after {len(lines)} answers: {child.stderr[-400:]}")

    def _keep(self, number: int, fault: str) -> None:
        self._arguments.keep.mkdir(parents=True, exist_ok=True)
        kept = mutation(self._seeds, self._arguments.keep, self._arguments.seed, number)
        self.faults.append(f"mutation {number} of seed {self._arguments.seed}, kept in {kept}: {fault}")


def fuzz(arguments: argparse.Namespace, fuzzer: Fuzzer) -> None:
    """Runs batches until the time or the count is over."""
    begin, end = time.monotonic(), arguments.first + arguments.count
    starts = iter(range(arguments.first, end, BATCH))

    def work() -> None:
        for start in starts:
            if time.monotonic() - begin > arguments.seconds:
                break
            fuzzer.run(start, min(start + BATCH, end))

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for job in [pool.submit(work) for _ in range(arguments.jobs)]:
            job.result()
    build = "sanitised core" if arguments.module else "release core"
    print(
        f"{fuzzer.answers.total()} mutations of valid files, seed {arguments.seed}, {build}, "
        f"{time.monotonic() - begin:.0f} s: {fuzzer.answers['ran']} ran, "
        f"{sum(n for kind, n in fuzzer.answers.items() if kind.startswith('refused'))} refused"
    )
    for kind, count in fuzzer.answers.most_common():
        print(f"{count:8} {kind}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--count", type=int, default=1_000_000, help="most mutations")
    parser.add_argument("--first", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--jobs", type=int, default=1, help="children at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--module", type=Path, help="folder of a _core built with -fsanitize=address,undefined")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "edgert-fuzz", help="for what fails")
    arguments = parser.parse_args()
    if any((ROOT / "edgert").glob("_core*.so")):
        os.environ["PYTHONPATH"] = str(ROOT)  # built in the tree: take that one, else the installed one
    with tempfile.TemporaryDirectory() as scratch:
        fuzzer = Fuzzer(arguments, Path(scratch))
        fuzz(arguments, fuzzer)
    print("\n".join(fuzzer.faults))
    print(f"{len(fuzzer.faults)} faults")
    sys.exit(bool(fuzzer.faults))


if __name__ == "__main__":
    main()
