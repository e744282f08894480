"""The committed edgert/_core.pyi is what pybind11-stubgen makes of the built module."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("edgert._core")
pytest.importorskip("pybind11_stubgen")


def test_the_stub_file_is_regenerated_without_a_difference(tmp_path: Path) -> None:
    made = tmp_path / "_core.pyi"
    subprocess.run([sys.executable, str(ROOT / "tools" / "make_stubs.py"), "--output", str(made)], check=True)
    assert made.read_text() == (ROOT / "edgert" / "_core.pyi").read_text(), "run `make stubs` and commit the file"
