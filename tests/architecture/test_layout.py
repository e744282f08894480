"""The tree and the wheel: symbolic links, guards, and a wheel that holds each file once and nothing else."""

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINKED = ("models", "offload", "quant")


def git_files() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this tree is no git clone")
    return listed.stdout.split()


def package_files(files: list[str]) -> set[str]:
    """What the wheel must hold of the files in git: their paths in the wheel."""
    expected = set()
    for name in files:
        folder = name.partition("/")[0]
        if folder in LINKED and name.endswith(".py"):
            expected.add(f"edgert/{name}")
        elif folder == "edgert" and name not in {f"edgert/{link}" for link in LINKED}:
            expected.add(name)
    return expected


def wheel_faults(names: list[str], expected: set[str]) -> list[str]:
    """What is wrong with a wheel that holds `names`."""
    faults = [f"twice: {name}" for name in sorted({n for n in names if names.count(n) > 1})]
    content = {name for name in names if not re.match(r"edgert-[^/]+\.dist-info/", name)}
    modules = {name for name in content if re.fullmatch(r"edgert/_core\.[^/]+\.so", name)}
    if len(modules) != 1:
        faults.append(f"edgert/_core: found {sorted(modules)}, expected one module")
    faults += [f"missing: {name}" for name in sorted(expected - content)]
    faults += [f"not in git: {name}" for name in sorted(content - expected - modules)]
    return faults


@pytest.mark.parametrize("name", LINKED)
def test_the_link_in_edgert_points_to_the_top_level_folder(name: str) -> None:
    link = ROOT / "edgert" / name
    if not link.is_symlink():
        assert link.read_text().strip() == f"../{name}", "a checkout without symbolic links holds the target as text"
    else:
        assert link.readlink() == Path(f"../{name}")


@pytest.mark.parametrize("name", LINKED)
def test_a_top_level_folder_refuses_its_short_name(name: str) -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {name}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 1
    assert f"import edgert.{name}" in run.stderr.splitlines()[-1]


def test_no_file_names_a_home_folder_or_a_registry() -> None:
    pattern = re.compile(r"(?<![\w.-])/(?:root|home|Users)/\w|index-url|/simple/")
    found = []
    for name in git_files():
        path = ROOT / name
        if path.is_symlink() or path.suffix not in {".py", ".h", ".cpp", ".md", ".toml", ".txt", ".in", ".yaml", ""}:
            continue
        if path == Path(__file__).resolve() or not path.is_file():
            continue
        found += [f"{name}: {match}" for match in pattern.findall(path.read_text(encoding="utf-8", errors="replace"))]
    assert found == []


def installed_files() -> list[str] | None:
    """Paths in the wheel that edgert was installed from; None where the tests see the tree itself."""
    origin = importlib.util.find_spec("edgert")
    assert origin is not None and origin.origin is not None
    if Path(origin.origin).resolve().is_relative_to(ROOT / "edgert"):
        return None
    listed = importlib.metadata.files("edgert") or []
    return [str(path) for path in listed if "__pycache__" not in path.parts and ".." not in path.parts]


def build_wheel(folder: Path) -> list[str]:
    """Paths in a wheel of the commit; unoptimised, since what it holds is the question."""
    clone = folder / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(clone)]
    environment = {**os.environ, "CMAKE_ARGS": "-DCMAKE_CXX_FLAGS_RELEASE=-O0"}
    build = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert build.returncode == 0, build.stderr[-2000:]
    (wheel,) = folder.glob("edgert-*.whl")
    with zipfile.ZipFile(wheel) as opened:
        return opened.namelist()


@pytest.mark.slow
def test_the_wheel_holds_each_file_of_the_package_once(tmp_path: Path) -> None:
    """Of the installed package where the tests run against one, so that nothing is built twice."""
    names = installed_files()
    if names is None and "EDGERT_TEST_WHEEL" not in os.environ:
        pytest.skip("edgert is the tree, built in place; EDGERT_TEST_WHEEL=1 builds a wheel (minutes)")
    assert wheel_faults(names or build_wheel(tmp_path), package_files(git_files())) == []


def test_a_faulty_wheel_is_found() -> None:
    expected = {"edgert/__init__.py", "edgert/quant/__init__.py", "edgert/assets/tiny/config.json"}
    good = [*expected, "edgert/_core.cpython-311-x86_64-linux-gnu.so", "edgert-0.1.0.dist-info/METADATA"]
    assert wheel_faults(good, expected) == []
    assert wheel_faults([*good, "quant/__init__.py"], expected) == ["not in git: quant/__init__.py"]
    assert wheel_faults([*good, "edgert/__init__.py"], expected) == ["twice: edgert/__init__.py"]
    assert len(wheel_faults(good[1:], expected)) == 1
