"""Architectures: one small file each, named after config.json's model_type; a module is loaded when it is asked for."""

import importlib
import os
from typing import Any

from edgert.models import registry
from edgert.models.registry import Architecture, register

if __name__ != "edgert.models":
    raise ImportError(f"this package is edgert.models: found it imported as {__name__!r}; import edgert.models")

__all__ = ["ARCHITECTURES", "Architecture", "get", "get_gguf", "register"]


def get(model_type: str, source: str = "config.json") -> Architecture:
    """The architecture of that config.json model_type. Raises UnsupportedModelError, which names `source`."""
    _load(model_type)
    if model_type not in registry.ARCHITECTURES:
        _load_all()
    return registry.get(model_type, source)


def get_gguf(name: str, source: str = "GGUF") -> Architecture:
    """An architecture of that general.architecture; its gguf_config says which. Raises UnsupportedModelError.

    `source` is named in the error. Those that share a name there share gguf_config too.
    """
    _load(name)
    if all(name != architecture.gguf.architecture for architecture in registry.ARCHITECTURES.values()):
        _load_all()
    return registry.get_gguf(name, source)


def __getattr__(name: str) -> Any:
    if name == "ARCHITECTURES":  # the table of all of them
        _load_all()
        return registry.ARCHITECTURES
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _load(name: str) -> None:
    """Loads the module of this name, if there is one: most models need no other. The name may be anything."""
    if f"{name}.py" in os.listdir(os.path.dirname(__file__)) and name != "__init__":
        importlib.import_module(f"{__name__}.{name}")


def _load_all() -> None:
    import pkgutil  # later: it takes longer than a model's file

    # Each module enters itself, so a new architecture is a new file and nothing else.
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
