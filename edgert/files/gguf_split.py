"""A GGUF model in several files, as llama.cpp's gguf-split writes them: name-00001-of-00003.gguf and so on."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from edgert.config import shown
from edgert.errors import FileFormatError, ModelNotFoundError
from edgert.files.checkpoint import Checkpoint, TensorEntry
from edgert.files.gguf import open_gguf

MAX_FILES = 1024
_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


def open_gguf_files(path: Path) -> Checkpoint:
    """Opens a GGUF file, and the other files of its model if it is one of several.

    Raises what open_gguf raises, ModelNotFoundError if a file is missing, FileFormatError if they do not fit together.
    """
    opened = open_gguf(path)
    count = opened.metadata.get("split.count", 0)
    if type(count) is not int or not 0 <= count <= MAX_FILES:
        raise FileFormatError(
            f"{path}: split.count: found {shown(count)}, expected 0 to {MAX_FILES}; download it again"
        )
    if count < 2:
        return opened
    return _joined(path, [opened if other == path else _open_other(other) for other in _names(path, count)])


def _names(path: Path, count: int) -> list[Path]:
    match = _NAME.fullmatch(path.name)
    if match is None or int(match[3]) != count:
        raise FileFormatError(
            f"{path}: found one of {count} files of a model, expected its name to end in -00001-of-{count:05}.gguf; "
            "give the files their first names back"
        )
    return [path.with_name(f"{match[1]}-{number + 1:05}-of-{count:05}.gguf") for number in range(count)]


def _open_other(path: Path) -> Checkpoint:
    try:
        return open_gguf(path, is_named=False)
    except ModelNotFoundError as error:
        raise ModelNotFoundError(f"{error} (the model is split, all of its files are needed)") from None


def _joined(path: Path, pieces: list[Checkpoint]) -> Checkpoint:
    """One checkpoint: the first file's metadata, everyone's tensors."""
    tensors: dict[str, TensorEntry] = {}
    for number, piece in enumerate(pieces):
        if piece.metadata.get("split.no") != number:
            raise FileFormatError(
                f"{piece.path}: split.no: found {shown(piece.metadata.get('split.no'))}, expected {number}; "
                "give the files their first names back"
            )
        for name, entry in piece.tensors.items():
            if name in tensors:
                raise FileFormatError(
                    f"{piece.path}: tensor {name!r}: found it in another file too, expected it once; download it again"
                )
            tensors[name] = replace(entry, file=number)
    expected = pieces[0].metadata.get("split.tensors.count", len(tensors))
    if expected != len(tensors):
        raise FileFormatError(
            f"{path}: found {len(tensors)} tensors in {len(pieces)} files, expected {shown(expected)}; "
            "download the files again"
        )
    return replace(pieces[0], path=path, files=tuple(piece.path for piece in pieces), tensors=tensors)
