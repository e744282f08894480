"""Modules of benchmarks/, without leaving that folder on sys.path: kernels.py there would hide tests/kernels."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


def script(name: str) -> ModuleType:
    """The module of that name."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))
