"""EDGERT_ISA: obeyed, or refused with what there is."""

import os
import subprocess
import sys

import pytest

from edgert import _core
from edgert.device.isa import select_isa
from edgert.errors import DeviceError


def usable_levels() -> list[str]:
    return [name for name, is_built, is_supported in _core.isa_levels() if is_built and is_supported]


def test_the_best_level_by_default() -> None:
    assert select_isa({}) == select_isa({"EDGERT_ISA": ""}) == usable_levels()[-1]


@pytest.mark.parametrize("name", usable_levels())
def test_every_usable_level_can_be_asked_for(name: str) -> None:
    assert select_isa({"EDGERT_ISA": name}) == name


@pytest.mark.parametrize("name", ["nonsense", "AVX2", " scalar"])
def test_an_unknown_name_is_refused_with_the_levels(name: str) -> None:
    with pytest.raises(DeviceError, match=r"no instruction set level has this name.*scalar"):
        select_isa({"EDGERT_ISA": name})


def test_a_level_that_the_cpu_or_the_build_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = [("scalar", True, True), ("avx2", True, False), ("amx", False, True)]
    monkeypatch.setattr(_core, "isa_levels", lambda: levels)
    with pytest.raises(DeviceError, match=r"'avx2' \(this CPU does not have it\), expected one of: scalar;"):
        select_isa({"EDGERT_ISA": "avx2"})
    with pytest.raises(DeviceError, match=r"'amx' \(it was left out of this build\)"):
        select_isa({"EDGERT_ISA": "amx"})


@pytest.mark.parametrize("name", usable_levels())
def test_a_model_runs_at_the_level_of_the_environment(name: str) -> None:
    code = (
        "import edgert\nwith edgert.load(threads=1) as llm: print(llm.isa, llm.generate([5, 6], max_tokens=2).tokens)"
    )
    environment = {**os.environ, "EDGERT_ISA": name}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(f"{name} (")
