"""The golden models: written into folders once, opened and run."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.json"))
GGUF_NAMES = sorted(path.stem for path in GOLDEN.glob("*.gguf"))


def _recipe() -> ModuleType:
    spec = importlib.util.spec_from_file_location("golden_weights", Path(__file__).with_name("golden_weights.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


recipe = _recipe()


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """A model's configuration and weights, the ids given to it and the float32 logits of transformers."""

    config: dict[str, Any]
    weights: dict[str, NDArray[np.float32]]
    ids: NDArray[np.int32]
    logits: NDArray[np.float32]
    gguf: Path

    def write(self, folder: Path, *, is_stacked: bool = False, is_old: bool = False, shards: int = 1) -> Path:
        """A Hugging Face folder; stacked: experts as transformers 5 holds them; old: config.json of transformers 4."""
        config = recipe.as_transformers_4(self.config) if is_old else self.config
        weights = recipe.stack_experts(self.weights) if is_stacked else self.weights
        written: Path = recipe.write_folder(folder, config, weights, shards)
        return written


@pytest.fixture(scope="session")
def golden_recipe() -> ModuleType:
    return recipe


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Golden]:
    def read(name: str) -> Golden:
        description = json.loads((GOLDEN / f"{name}.json").read_text())
        with np.load(GOLDEN / f"{name}.npz") as arrays:
            return Golden(
                config=description["config"],
                weights=recipe.make_weights(description["shapes"], description["seed"]),
                ids=arrays["ids"],
                logits=arrays["logits"],
                gguf=GOLDEN / f"{name}.gguf",
            )

    return read


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """golden_name: every model; gguf_name: those that have a GGUF file; moe_name: those with experts."""
    for fixture, names in (
        ("golden_name", NAMES),
        ("gguf_name", GGUF_NAMES),
        ("moe_name", [name for name in NAMES if "moe" in name or name == "mixtral"]),
    ):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, names)
