"""The files of our folder that hold the tokenizer: copied from a folder, rebuilt from the vocabulary of a GGUF file."""

from __future__ import annotations

from edgert import tokenizer
from edgert.files.checkpoint import Checkpoint
from edgert.files.opening import is_there, read_whole
from edgert.hub.choose import TOKENIZER_FILES

_MAX_BYTES = 1 << 28  # of a tokenizer's file; the largest vocabularies take some 40 MB


def tokenizer_files(checkpoint: Checkpoint) -> dict[str, bytes]:
    """File name -> content. Empty for a model without a tokenizer. Raises TokenizerError for a vocabulary not known."""
    if checkpoint.kind == "gguf":
        rebuilt = tokenizer.load(checkpoint)
        return {} if rebuilt is None else {n: text.encode() for n, text in tokenizer.tokenizer_files(rebuilt).items()}
    folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    return {name: read_whole(folder / name, _MAX_BYTES) for name in TOKENIZER_FILES if is_there(folder / name)}
