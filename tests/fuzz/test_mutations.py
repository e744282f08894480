"""A seeded sample of the mutations that `make fuzz` runs in full."""

import os
import subprocess
import sys
from pathlib import Path


def test_a_sample_of_mutated_models_never_crashes(tmp_path: Path) -> None:
    script = Path(__file__).with_name("mutate.py")
    seed = os.environ.get("EDGERT_TEST_SEED", "1")
    command = [sys.executable, str(script), "--count", "600", "--seed", seed, "--keep", str(tmp_path / "kept")]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith("600 mutations of valid files")
