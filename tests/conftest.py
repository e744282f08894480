"""Decides which edgert the tests see: the tree where it was built in place (make dev), else the installed package."""

import atexit
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def _is_root(entry: str) -> bool:
    return Path(entry or os.curdir).resolve() == ROOT


IS_BUILT_IN_TREE = any((ROOT / "edgert").glob("_core*.so"))
if IS_BUILT_IN_TREE:
    if not any(_is_root(entry) for entry in sys.path):
        sys.path.insert(0, str(ROOT))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
else:
    # `python -m` and `python -c` put the working folder first: the clone, which has no _core, must not be that one,
    # for us and for the processes that tests start.
    sys.path[:] = [entry for entry in sys.path if not _is_root(entry)]


# What tests measure says nothing about a quiet machine: their choices of kernels go nowhere near the user's.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="edgert-test-cache-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)


def pytest_sessionstart() -> None:
    if not IS_BUILT_IN_TREE:
        os.chdir(ROOT / "tests")


def pytest_report_header() -> str:
    spec = importlib.util.find_spec("edgert")
    found = Path(spec.origin).parent if spec is not None and spec.origin else "not found"
    return f"edgert: {found} ({'tree, built in place' if IS_BUILT_IN_TREE else 'installed'})"
