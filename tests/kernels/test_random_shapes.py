"""Every kernel of every level equals scalar on random shapes: a sample of `make kernels`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from edgert import _core

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = sorted(ROOT / "build" / build / "edgert_digest" for build in ("dev", "digest"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.parent.name)
def test_random_shapes(program: Path) -> None:
    if not program.exists():
        pytest.skip("needs the program of `make dev` or `make digests`")
    seed = os.environ.get("EDGERT_TEST_SEED", "1")
    command = [str(program), "--shapes", "60", "--seed", seed]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = [line.split(" ")[0] for line in run.stdout.splitlines() if not line.startswith("#")]
    assert lines == [f"shapes.{name}" for name in _core.format_names()]
