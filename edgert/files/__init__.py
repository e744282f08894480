"""Headers of model files: GGUF, Hugging Face folders, our own folder. Kinds are told apart by content, not by name."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from edgert.errors import EdgertError, FileFormatError, ModelNotFoundError, OutOfMemoryError, UnsupportedFormatError
from edgert.files.checkpoint import Checkpoint, Kind, Part, TensorEntry
from edgert.files.containment import real_path
from edgert.files.gguf import is_gguf
from edgert.files.gguf_split import open_gguf_files
from edgert.files.huggingface import CONFIG, open_folder, pickle_error
from edgert.files.opening import file_mode, is_there, os_errors, read_start
from edgert.files.safetensors import is_safetensors
from edgert.hub import resolve_model

__all__ = ["Checkpoint", "Kind", "Part", "TensorEntry", "open_checkpoint"]

_ZIP, _PICKLE, _LFS = b"PK\x03\x04", (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"), b"version https://git-lfs"


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Opens a model and reads its headers: a GGUF file, a folder, a safetensors file in one, or ORG/NAME[:FILE] in the
    cache of the hub.

    A GGUF file that holds only a vocabulary opens too: it has no tensors.
    Raises ModelNotFoundError, HubError, FileFormatError, UnsupportedFormatError or OutOfMemoryError.
    """
    place = resolve_model(path)
    try:
        return _open(place)
    except MemoryError:
        raise OutOfMemoryError(f"{place}: its header does not fit the memory; is the file damaged?") from None


def _open(place: Path) -> Checkpoint:
    if stat.S_ISDIR(file_mode(place)):
        return _open_folder(place)
    start = read_start(place, 64)
    if is_gguf(start):
        return open_gguf_files(place)
    if is_safetensors(start):
        if not is_there(place.parent / CONFIG):
            raise ModelNotFoundError(f"{place}: found no {CONFIG} beside it; give a file inside a whole model folder")
        return open_folder(place.parent, only=place)
    raise _unknown_content(place, start)


def _open_folder(folder: Path) -> Checkpoint:
    if is_there(folder / CONFIG):
        return open_folder(folder)
    with os_errors(folder):
        ggufs = sorted(folder.glob("*.gguf"))
    if len(ggufs) == 1:
        with os_errors(ggufs[0]):
            real_path(ggufs[0])  # found, not named: it must lie in the folder
        return open_gguf_files(ggufs[0])
    if ggufs:
        names = ", ".join(path.name for path in ggufs[:4])
        raise ModelNotFoundError(f"{folder}: found {len(ggufs)} GGUF files ({names}); give the path of one of them")
    raise ModelNotFoundError(f"{folder}: found no {CONFIG} and no GGUF file, expected a model folder; check the path")


def _unknown_content(path: Path, start: bytes) -> EdgertError:
    if start.startswith((_ZIP, *_PICKLE)):
        return pickle_error(path)
    if start.startswith(_LFS):
        return FileFormatError(f"{path}: found a Git LFS pointer, expected the file itself; run git lfs pull")
    if start.lstrip()[:1] == b"{":
        return FileFormatError(f"{path}: found JSON, expected a model; give the folder that it lies in")
    if start.lstrip()[:1] == b"<":
        return FileFormatError(f"{path}: found a web page, expected a model; download the file itself")
    if not start:
        return FileFormatError(f"{path}: found an empty file, expected a model; download it again")
    return UnsupportedFormatError(f"{path}: found bytes {start[:8]!r}, expected GGUF or safetensors; convert the model")
