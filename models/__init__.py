"""Architectures: one small file each, named after config.json's model_type; every module here is loaded once."""

import importlib
import pkgutil

from edgert.models.registry import ARCHITECTURES, Architecture, get, get_gguf, register

if __name__ != "edgert.models":
    raise ImportError(f"this package is edgert.models: found it imported as {__name__!r}; import edgert.models")

__all__ = ["ARCHITECTURES", "Architecture", "get", "get_gguf", "register"]

# Each module enters itself, so a new architecture is a new file and nothing else.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
