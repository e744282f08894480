"""Models that every test here may read, and the public way with a budget whose minimum is known."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import edgert
from edgert.engine import opening
from edgert.errors import OutOfMemoryError
from edgert.llm import LLM

from .streamed_models import Models

STEP_BYTES = 64 << 10
LoadSmall = Callable[..., LLM]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Whoever spoils one takes a copy."""
    return Models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def load_small(monkeypatch: pytest.MonkeyPatch) -> LoadSmall:
    """load_small(path=None, **options) opens a model with the least budget that it can have.

    What the process takes is said to be always the same.
    """
    monkeypatch.setattr(opening, "resident_bytes", lambda: 64 << 20)

    def load(path: Path | None = None, **options: Any) -> LLM:
        options = {"threads": 2, "context": 256} | options
        ram = STEP_BYTES
        while True:
            try:
                llm = edgert.load(path, ram=ram, **options)
                break
            except OutOfMemoryError as error:  # in whole MiB, with which a small model may fit
                least_mib = int(str(error).split("at least ")[1].split(" MiB")[0])
                ram = max(ram + STEP_BYTES, (least_mib - 1 << 20) + STEP_BYTES)
        assert llm.memory is not None
        assert not llm.memory.placement.fits
        return llm

    return load
