"""What a model's files hold, as values: no bytes of a tensor are read here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edgert.files.containment import real_path
from edgert.files.opening import os_errors

Kind = Literal["gguf", "huggingface", "edgert"]


@dataclass(frozen=True, slots=True)
class Part:
    """An addressable piece of a packed tensor: bytes [offset, offset + length) of its file."""

    name: str
    offset: int
    length: int
    checksum: str | None = None


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor lies. `shape` is row-major, outermost first: (n,), (rows, cols) or (experts, rows, cols).

    `format` is a format's name (docs/formats.md) or another ggml or safetensors type in lower case, which is kept so
    that an error can name it. `file` is an index into Checkpoint.files; `offset` and `length` are bytes of that file.
    `parts` is empty where the bytes lie row by row, as in GGUF and Hugging Face files; `checksum` is then theirs, if
    the file has one. `outliers`: the parts of the sparse matrix beside a packed one, if it has one.
    """

    name: str
    format: str
    shape: tuple[int, ...]
    file: int
    offset: int
    length: int
    parts: tuple[Part, ...] = ()
    outliers: tuple[Part, ...] = ()
    checksum: str | None = None

    @property
    def num_outliers(self) -> int:
        """Values in the sparse matrix beside it."""
        return self.outliers[-1].length // 2 if self.outliers else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model on disk: its files, configuration and tensors under the names that the files use.

    config: config.json (for GGUF empty here; edgert.loader.open_model rebuilds it from the metadata).
    metadata: the key-values of a GGUF file, arrays as lists; empty for the other kinds.
    """

    kind: Kind
    path: Path
    files: tuple[Path, ...]
    config: dict[str, Any]
    generation_config: dict[str, Any]
    tensors: dict[str, TensorEntry]
    metadata: dict[str, Any]

    @property
    def real_files(self) -> tuple[Path, ...]:
        """`files` without links, for opening with O_NOFOLLOW. Raises FileFormatError where one leads out by now."""
        found = []
        for file in self.files:
            with os_errors(file):
                found.append(real_path(file, is_named=file == self.path))
        return tuple(found)

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(entry.length for entry in self.tensors.values())
