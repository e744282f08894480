"""The files of our folder that hold the tokenizer: copied from a folder, rebuilt from the vocabulary of a GGUF file."""

from __future__ import annotations

from pathlib import Path

from edgert import tokenizer
from edgert.errors import TokenizerError
from edgert.files.checkpoint import Checkpoint

_COPIED = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
)
_MAX_BYTES = 1 << 28  # of a tokenizer's file; the largest vocabularies take some 40 MB


def tokenizer_files(checkpoint: Checkpoint) -> dict[str, bytes]:
    """File name -> content. Empty for a model without a tokenizer. Raises TokenizerError for a vocabulary not known."""
    if checkpoint.kind == "gguf":
        rebuilt = tokenizer.load(checkpoint)
        return {} if rebuilt is None else {n: text.encode() for n, text in tokenizer.tokenizer_files(rebuilt).items()}
    folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    return {name: _read(folder / name) for name in _COPIED if (folder / name).is_file()}


def _read(path: Path) -> bytes:
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise TokenizerError(f"{path}: found {size:,} bytes, expected at most {_MAX_BYTES:,}; is this a tokenizer?")
    return path.read_bytes()
