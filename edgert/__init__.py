"""edgert: large language models on the machine that you have."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from edgert.errors import EdgertError

if TYPE_CHECKING:
    from edgert.llm import LLM as LLM
    from edgert.llm import load as load
    from edgert.tokenizer import load_tokenizer as load_tokenizer

try:
    __version__ = version("edgert")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+source"

_EXPORTS = {"LLM": "edgert.llm", "load": "edgert.llm", "load_tokenizer": "edgert.tokenizer"}

__all__ = ["LLM", "EdgertError", "__version__", "load", "load_tokenizer"]


def __getattr__(name: str) -> Any:
    # Imported when first used: `edgert --help` needs neither the core nor the tokenizers library.
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'edgert' has no attribute {name!r}")
