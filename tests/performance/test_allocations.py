"""A step of the core takes no memory from the heap: malloc is interposed in a process of its own."""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import edgert
from edgert.llm import DEFAULT_MODEL

HERE = Path(__file__).parent
COMPILER = shutil.which("cc") or shutil.which("gcc")
ROOT = Path(edgert.__file__).parents[1]

pytestmark = [
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the counter is written for glibc"),
    pytest.mark.skipif(COMPILER is None, reason="needs a C compiler"),
]


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("counter") / "count_allocations.so"
    command = [str(COMPILER), "-O1", "-shared", "-fPIC", "-o", str(library), str(HERE / "count_allocations.c"), "-ldl"]
    subprocess.run(command, check=True)
    return library


def count(counter: Path, model: Path, threads: int) -> dict[str, int]:
    environment = {**os.environ, "LD_PRELOAD": str(counter), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(HERE / "decode_counted.py"), str(counter), str(model), str(threads)]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    counted: dict[str, int] = json.loads(run.stdout)
    assert counted["tokens"] == 200
    assert counted["seen"] > 0, "the counter sees nothing"
    return counted


@pytest.mark.parametrize("threads", [1, 2])
def test_a_decode_step_allocates_nothing(counter: Path, threads: int) -> None:
    assert count(counter, DEFAULT_MODEL, threads)["allocations"] == 0


def test_a_decode_step_with_experts_allocates_nothing(counter: Path) -> None:
    model = HERE.parent / "models" / "golden" / "qwen3_moe.gguf"
    assert count(counter, model, 2)["allocations"] == 0
