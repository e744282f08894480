"""Writers of whole small models with something changed, for the corpus of malformed ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fuzz import seed_models
from fuzz.seed_models import BYTE_LEVEL_KEYS, MODEL_KEYS, SENTENCEPIECE_KEYS

from .own_folder import write_own

Build = Callable[[Path], Path]
Keys = list[tuple[str, int, Any]]
Tensors = dict[str, Any]
TENSORS: Tensors = seed_models.weights(np.random.default_rng(1))
GONE = object()  # for a value that is taken out


def folder(*changes: Callable[[Path], None], tensors: Tensors = TENSORS) -> Build:
    """A Hugging Face folder, changed."""

    def build(place: Path) -> Path:
        seed_models.write_folder(place / "model", tensors)
        for change in changes:
            change(place / "model")
        return place / "model"

    return build


def file(name: str, content: bytes | str) -> Callable[[Path], None]:
    return lambda place: (place / name).write_bytes(content.encode() if isinstance(content, str) else content) and None


def values(name: str, **fields: Any) -> Callable[[Path], None]:
    """Values of a JSON file set, or taken out."""

    def change(place: Path) -> None:
        path = place / name
        content = (json.loads(path.read_text()) if path.exists() else {}) | fields
        path.write_text(json.dumps({key: value for key, value in content.items() if value is not GONE}))

    return change


def config(**fields: Any) -> Build:
    return folder(values("config.json", **fields))


def tokenizer(**fields: Any) -> Build:
    return folder(values("tokenizer.json", **fields))


def settings(**fields: Any) -> Build:
    return folder(values("tokenizer_config.json", **fields))


def bpe(**fields: Any) -> Build:
    """tokenizer.json with another `model`."""
    return tokenizer(model=seed_models.tokenizer_json()["model"] | fields)


def without(name: str) -> Build:
    return folder(tensors={key: value for key, value in TENSORS.items() if key != name})


def shards(index: Any, change: Callable[[Path], None] = lambda place: None) -> Build:
    """The sharded folder with another index; {} keeps the right one."""

    def build(place: Path) -> Path:
        seed_models.write_shards(place / "model", TENSORS)
        if index != {}:
            (place / "model" / "model.safetensors.index.json").write_text(json.dumps(index))
        change(place / "model")
        return place / "model"

    return build


def weight_map(**fields: str) -> dict[str, Any]:
    """An index that puts everything into the first file, but for `norm`."""
    names = dict.fromkeys(TENSORS, "model-00001-of-00002.safetensors")
    return {"weight_map": names | {"model.norm.weight": fields["norm"]}}


def gguf(
    changes: dict[str, Any] | None = None,
    keys: list[tuple[str, int, Any]] = BYTE_LEVEL_KEYS,
    tensors: Tensors = TENSORS,
) -> Build:
    """A whole GGUF model with key-values changed: key -> (type, value), or GONE."""

    def build(place: Path) -> Path:
        pairs = {key: (kind, value) for key, kind, value in MODEL_KEYS + keys} | (changes or {})
        kept = [(key, *pair) for key, pair in pairs.items() if pair is not GONE]
        seed_models.write_gguf(place / "model.gguf", tensors, kept)
        return place / "model.gguf"

    return build


def sentencepiece(**changes: Any) -> Build:
    return gguf({f"tokenizer.ggml.{key}": value for key, value in changes.items()}, SENTENCEPIECE_KEYS)


def ggml(key: str, kind: int, value: Any) -> Build:
    return gguf({f"tokenizer.ggml.{key}": (kind, value)})


def split(change: Callable[[Path], Any]) -> Build:
    def build(place: Path) -> Path:
        seed_models.write_split_gguf(place / "model", TENSORS)
        change(place / "model")
        return min((place / "model").iterdir())

    return build


def replaced(name: str, old: bytes, new: bytes) -> Callable[[Path], Any]:
    """Bytes of a file exchanged; they must be there."""

    def change(place: Path) -> None:
        content = (place / name).read_bytes()
        assert old in content
        (place / name).write_bytes(content.replace(old, new, 1))

    return change


def own(described: Any, version: str = "1") -> Build:
    def build(place: Path) -> Path:
        (place / "config.json").write_text('{"model_type": "llama"}')
        write_own(place, described, version)
        return place

    return build
