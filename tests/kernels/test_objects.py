"""An ISA's object file exports its table and nothing else, so that no processor gets code made for another."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Sanitizers add symbols of their own: build/fuzz is left out.
OBJECTS = sorted(p for build in ("dev", "digest") for p in (ROOT / "build" / build).glob("**/kernels/isa/*.o"))


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm (binutils)")
@pytest.mark.skipif(not OBJECTS, reason="needs the objects of `make dev`")
@pytest.mark.parametrize("path", OBJECTS, ids=lambda p: f"{p.relative_to(ROOT / 'build').parts[0]}-{p.name}")
def test_exactly_one_symbol(path: Path) -> None:
    """Weak symbols count: the linker keeps one copy of an inline function, and it may be the AVX-512 one."""
    command = ["nm", "-C", "--extern-only", "--defined-only", "--format=posix", str(path)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    isa = path.name.split(".")[0]
    assert [line.split(" ")[0] for line in lines] == [f"edgert::{isa}::kTable"]
