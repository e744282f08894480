"""edgert: large language models on the machine that you have."""

from __future__ import annotations

from importlib import import_module

from edgert.errors import EdgertError

# As that of typing, which would be imported before the command line can answer to Ctrl-C.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from edgert.llm import LLM as LLM
    from edgert.llm import load as load
    from edgert.tokenizer import load_tokenizer as load_tokenizer

    __version__: str

_EXPORTS = {"LLM": "edgert.llm", "load": "edgert.llm", "load_tokenizer": "edgert.tokenizer"}

__all__ = ["LLM", "EdgertError", "__version__", "load", "load_tokenizer"]


def __getattr__(name: str) -> Any:
    # Found when first used: `edgert --help` needs neither the core nor the tokenizers library.
    if name == "__version__":
        return _version()
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'edgert' has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("edgert")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0+source"
