"""A folder with config.json and safetensors files, sharded or not: Hugging Face's layout, and our own in it."""

from __future__ import annotations

from pathlib import Path

from edgert.config import shown
from edgert.errors import FileFormatError, ModelNotFoundError, UnsupportedFormatError
from edgert.files.checkpoint import Checkpoint, Kind, TensorEntry
from edgert.files.folder import FORMAT_VERSION_KEY, packed_tensors
from edgert.files.opening import is_there, os_errors, read_json
from edgert.files.safetensors import SafetensorsHeader, read_safetensors

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def open_folder(folder: Path, only: Path | None = None) -> Checkpoint:
    """Reads config.json and the headers of the folder's safetensors files.

    `only`: a safetensors file of the folder that was asked for by name. If the folder's own files do not include it,
    it is opened alone, with the folder's config.json.
    """
    config = read_json(folder / CONFIG)
    generation_path = folder / GENERATION_CONFIG
    generation_config = read_json(generation_path) if is_there(generation_path) else {}
    files, placed_in = _weight_files(folder, only)
    headers = [read_safetensors(path, index) for index, path in enumerate(files)]
    tensors = _merged(files, headers, placed_in)
    kind: Kind = "huggingface"
    if any(FORMAT_VERSION_KEY in header.metadata for header in headers):
        kind = "edgert"
        tensors = packed_tensors(files, headers, tensors)
    return Checkpoint(
        kind=kind,
        path=folder,
        files=files,
        config=config,
        generation_config=generation_config,
        tensors=tensors,
        metadata={},
    )


def _weight_files(folder: Path, only: Path | None) -> tuple[tuple[Path, ...], dict[str, Path]]:
    """The folder's safetensors files, and for a sharded model the file that its index names for each tensor."""
    has_single, has_index = is_there(folder / SINGLE), is_there(folder / INDEX)
    with os_errors(folder):
        others = sorted(folder.glob("*.safetensors"))
    placed_in: dict[str, Path] = {}
    if has_single:
        files: tuple[Path, ...] = (folder / SINGLE,)
    elif has_index:
        placed_in = _read_index(folder)
        files = tuple(sorted(set(placed_in.values())))
    else:
        files = tuple(others)
    if only is not None and only.name not in {path.name for path in files}:
        return (only,), {}
    if not files:
        raise _no_weights(folder)
    if len(files) > 1 and not has_index:
        names = ", ".join(path.name for path in files[:4])
        raise FileFormatError(
            f"{folder}: found {len(files)} safetensors files ({names}), expected {INDEX} beside them; "
            "add it, or give the path of the one to open"
        )
    return files, placed_in


def _read_index(folder: Path) -> dict[str, Path]:
    path = folder / INDEX
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise FileFormatError(
            f"{path}: weight_map: found {shown(weight_map)}, expected an object of file names; download it again"
        )
    for name in {str(value): value for value in weight_map.values()}.values():
        # A plain name cannot leave the folder.
        is_plain = isinstance(name, str) and name not in ("", ".", "..") and name.isprintable()
        if not is_plain or any(c in name for c in "/\\:"):
            raise FileFormatError(
                f"{path}: found file name {shown(name)}, expected a plain name inside the folder; "
                "do not trust this model"
            )
    return {tensor: folder / name for tensor, name in weight_map.items()}


def _merged(
    files: tuple[Path, ...], headers: list[SafetensorsHeader], placed_in: dict[str, Path]
) -> dict[str, TensorEntry]:
    """All tensors; each name once, and where the index says."""
    tensors: dict[str, TensorEntry] = {}
    for header in headers:
        for name, entry in header.tensors.items():
            path = files[entry.file]
            if name in tensors:
                if name.startswith("#pad."):
                    continue
                other = files[tensors[name].file].name
                raise FileFormatError(
                    f"{path}: tensor {name[:120]!r}: found it in {other} too, expected it once; download it again"
                )
            if placed_in and placed_in.get(name, path) != path:
                raise FileFormatError(
                    f"{path}: tensor {name[:120]!r}: found it here, expected it in {placed_in[name].name} by {INDEX}; "
                    "download the model again"
                )
            tensors[name] = entry
    for name, path in placed_in.items():
        if name not in tensors:
            raise FileFormatError(
                f"{path}: tensor {name[:120]!r}: not found, expected it as {INDEX} says; download the file again"
            )
    return tensors


def _no_weights(folder: Path) -> Exception:
    with os_errors(folder):
        pickles = [path.name for pattern in PICKLES for path in sorted(folder.glob(pattern))]
        ggufs = sorted(path.name for path in folder.glob("*.gguf"))
    if pickles:
        return pickle_error(folder / pickles[0])
    if ggufs:
        return ModelNotFoundError(
            f"{folder}: found {len(ggufs)} GGUF files ({ggufs[0]} ...), expected safetensors; give the path of one"
        )
    return ModelNotFoundError(f"{folder}: found {CONFIG}, expected a safetensors file too; download the weights")


def pickle_error(path: Path) -> UnsupportedFormatError:
    """Pickles run code when they are loaded, so they are never read."""
    return UnsupportedFormatError(
        f"{path}: found a PyTorch pickle, expected safetensors or GGUF; a pickle can run code when it is opened: "
        "convert it with a program that you trust"
    )
