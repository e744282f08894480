"""The table of architectures: what each one provides, and the decorator that enters it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgert.config import ConfigReader
from edgert.errors import UnsupportedModelError
from edgert.graph import Graph, Value
from edgert.models.gguf_names import GgufHeader, GgufNames, TensorPlace

Build = Callable[[Graph, Any], Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One `model_type`: read_config makes its frozen config, build declares its graph from that config.

    gguf: how a GGUF file names its tensors. gguf_config: its metadata as config.json. place: where Hugging Face
    checkpoints have a weight that they do not hold under the graph's name (None: nowhere else). text_of: model_type of
    checkpoints that read images too and have such a model inside, under text_config.
    """

    model_type: str
    read_config: Callable[[ConfigReader], Any]
    build: Build
    gguf: GgufNames
    gguf_config: Callable[[GgufHeader], dict[str, Any]]
    place: Callable[[str], TensorPlace | None]
    text_of: str


ARCHITECTURES: dict[str, Architecture] = {}


def register(
    model_type: str,
    *,
    read_config: Callable[[ConfigReader], Any],
    gguf: GgufNames,
    gguf_config: Callable[[GgufHeader], dict[str, Any]],
    place: Callable[[str], TensorPlace | None] = lambda name: None,
    text_of: str = "",
) -> Callable[[Build], Build]:
    """Enters the decorated build function under `model_type`."""

    def enter(build: Build) -> Build:
        ARCHITECTURES[model_type] = Architecture(
            model_type=model_type,
            read_config=read_config,
            build=build,
            gguf=gguf,
            gguf_config=gguf_config,
            place=place,
            text_of=text_of,
        )
        return build

    return enter


def get(model_type: str, source: str = "config.json") -> Architecture:
    """The architecture of that config.json model_type, or of the text inside it (text_of).

    Raises UnsupportedModelError, which names `source`.
    """
    by_whole = {architecture.text_of: architecture for architecture in ARCHITECTURES.values() if architecture.text_of}
    known = by_whole | ARCHITECTURES
    if model_type not in known:
        raise _unknown(f"{source}: model_type", model_type, list(known))
    return known[model_type]


def get_gguf(name: str, source: str = "GGUF") -> Architecture:
    """An architecture of that general.architecture; its gguf_config says which. Raises UnsupportedModelError.

    `source` is named in the error. Those that share a name there share gguf_config too.
    """
    by_gguf_name = {architecture.gguf.architecture: architecture for architecture in ARCHITECTURES.values()}
    if name not in by_gguf_name:
        raise _unknown(f"{source}: general.architecture", name, list(by_gguf_name))
    return by_gguf_name[name]


def _unknown(what: str, name: str, known: list[str]) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{what}: found {name[:80]!r}, expected one of {', '.join(sorted(known))}; use such a model"
    )
