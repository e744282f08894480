"""A short run of benchmarks/soak.py: what a process has must be the same after many generations as before."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "soak.py"


def test_no_page_request_or_thread_is_lost() -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc/self for memory and threads")
    seed = os.environ.get("EDGERT_TEST_SEED", "1")
    command = [sys.executable, str(SCRIPT), "--generations", "300", "--seed", seed, "--json"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.stdout, run.stderr
    found = json.loads(run.stdout)
    assert set(found["ends"]) == {"finished", "cancelled"}, found
    assert found["generations"] == 300
    assert found["ends"]["cancelled"] > 10
    assert found["kept_kv_bytes"] > 0
    assert (found["lost_kv_bytes"], found["open_requests"], found["threads_left"]) == (0, 0, 0)
    # Memory has not settled after 300: the bound of 2 % is for the 10,000 of the full run.
    assert found["growth"] < 0.1
