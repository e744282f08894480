"""`edgert run --ram`: the same tokens inside the budget, or one line that says the least budget."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edgert.llm import DEFAULT_MODEL

# What wait4 says of a child's memory includes that of the process that was forked; the child's own peak does not.
PROGRAM = """
import atexit, os, pathlib
peak = lambda: pathlib.Path(os.environ["PEAK_FILE"]).write_text(pathlib.Path("/proc/self/status").read_text())
atexit.register(peak)
from edgert.cli import main
main()
"""
COMMAND = [sys.executable, "-c", PROGRAM, "run", "-m", str(DEFAULT_MODEL)]
OPTIONS = ["-p", "Once upon a time", "-n", "12", "--temp", "0", "--ignore-eos", "--json", "-c", "256", "-t", "2"]


def run(folder: Path, *extra: str) -> tuple[int, str, str, int]:
    """Exit code, stdout, stderr, and the most bytes that were resident."""
    with (folder / "out").open("w+") as out, (folder / "err").open("w+") as err:
        peak_file = folder / "peak"
        code = subprocess.run(
            [*COMMAND, *OPTIONS, *extra],
            stdout=out,
            stderr=err,
            env=os.environ | {"PEAK_FILE": str(peak_file)},
            check=False,
        ).returncode
        out.seek(0)
        err.seek(0)
        peak = re.search(r"VmHWM:\s+(\d+) kB", peak_file.read_text())
        assert peak
        return code, out.read(), err.read(), int(peak[1]) * 1024


def test_the_least_budget_is_said_and_is_enough(tmp_path: Path) -> None:
    code, out, _, _ = run(tmp_path)
    assert code == 0
    expected = json.loads(out)["tokens"]
    budget = 10
    for _ in range(4):  # a larger budget sets more aside, and has another minimum
        code, out, err, peak_bytes = run(tmp_path, "--ram", f"{budget}MiB")
        if code == 0:
            break
        assert code == 1
        assert out == ""
        assert len(err.splitlines()) == 1
        found = re.search(r"expected at least (\d+) MiB", err)
        assert found, err
        budget = int(found[1]) + 2
    assert code == 0, err
    assert json.loads(out)["tokens"] == expected
    assert peak_bytes <= budget * 1.03 * 2**20, (peak_bytes, budget)


@pytest.mark.parametrize("size", ["", "3 cats", "-1GiB", "0"])
def test_bad_sizes(tmp_path: Path, size: str) -> None:
    code, out, err, _ = run(tmp_path, f"--ram={size}")
    assert code in (1, 2)
    assert out == ""
    assert "--ram" in err or "ram" in err
