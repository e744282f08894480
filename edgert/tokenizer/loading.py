"""Finding the tokenizer of a model: a GGUF file, a folder, or a tokenizer.json."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from typing import Any

from edgert.errors import TokenizerError
from edgert.files.checkpoint import Checkpoint
from edgert.files.gguf import is_gguf, open_gguf
from edgert.files.opening import file_mode, read_start
from edgert.hub import resolve_model
from edgert.tokenizer.huggingface import from_folder, from_tokenizer_json
from edgert.tokenizer.tokenizer import Tokenizer


def load(source: Checkpoint | str | os.PathLike[str]) -> Tokenizer | None:
    """The tokenizer of an opened checkpoint, or of a path; None if there is none.

    Raises TokenizerError if there is one that cannot be built, and the errors of opening a file.
    """
    if isinstance(source, Checkpoint):
        if source.kind == "gguf":
            return _from_gguf(source.metadata, str(source.path))
        return from_folder(source.path if source.path.is_dir() else source.path.parent)
    path = resolve_model(source)
    if stat.S_ISDIR(file_mode(path)):
        return from_folder(path)
    start = read_start(path, 4)
    if is_gguf(start):
        return _from_gguf(open_gguf(path).metadata, str(path))
    if path.suffix == ".json" or start.lstrip()[:1] == b"{":
        return from_tokenizer_json(path, is_named=True)
    return from_folder(path.parent)


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of a GGUF file (one that holds only a vocabulary too), a model's folder, or a tokenizer.json.

    Raises TokenizerError if there is none, or if it cannot be built; ModelNotFoundError if the path is wrong.

    >>> tokenizer = edgert.load_tokenizer("llama.gguf")
    >>> tokenizer.decode(tokenizer.encode("Hello"))
    'Hello'
    """
    tokenizer = load(path)
    if tokenizer is None:
        raise TokenizerError(
            f"{path}: found no tokenizer, expected a GGUF file with a vocabulary, a folder with tokenizer.json, or a "
            f"tokenizer.json; copy the model's tokenizer.json into its folder"
        )
    return tokenizer


def _from_gguf(metadata: Mapping[str, Any], source: str) -> Tokenizer | None:
    # Later: a folder's model needs none of it to start.
    from edgert.tokenizer.gguf import from_gguf

    return from_gguf(metadata, source)


def tokenizer_files(tokenizer: Tokenizer) -> dict[str, str]:
    """The files that hold `tokenizer` in a folder, by name: for a converter that comes from GGUF."""
    config = dict(tokenizer.config)
    return {
        "tokenizer.json": tokenizer.to_json(),
        "tokenizer_config.json": json.dumps(config, indent=2, ensure_ascii=False) + "\n",
    }
