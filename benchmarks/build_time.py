"""How long does a clean build take? Configures and builds into a temporary folder, without a compiler cache.

python benchmarks/build_time.py --jobs 2 --check
"""

import argparse
import subprocess
import sys
import tempfile
import time

from _common import ROOT, report

ASKED_S = 480


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--check", action="store_true", help=f"exit code 1 beyond {ASKED_S} s")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    pybind = subprocess.run(
        [sys.executable, "-m", "pybind11", "--cmakedir"], capture_output=True, text=True, check=True
    ).stdout.strip()
    with tempfile.TemporaryDirectory() as scratch:
        configure = [
            "cmake", "-G", "Ninja", "-S", str(ROOT), "-B", scratch, f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={pybind}", f"-DEDGERT_OUTPUT_DIR={scratch}", "-DCMAKE_CXX_COMPILER_LAUNCHER=",
        ]  # fmt: skip
        began_s = time.perf_counter()
        for command in (configure, ["cmake", "--build", scratch, "--parallel", str(arguments.jobs)]):
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode != 0:
                sys.exit(f"{' '.join(command)}: exit code {run.returncode}\n{(run.stdout + run.stderr)[-2000:]}")
        elapsed_s = time.perf_counter() - began_s
    line = f"clean build with {arguments.jobs} jobs: {elapsed_s:.0f} s (asked {ASKED_S})"
    report({"elapsed_s": elapsed_s, "jobs": arguments.jobs}, [line], as_json=arguments.json)
    sys.exit(arguments.check and elapsed_s > ASKED_S)


if __name__ == "__main__":
    main()
