"""Which files of a repository make the model that a name asks for: on the hub before a download, or in the cache."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgert.errors import HubError, ModelNotFoundError, size
from edgert.hub.names import HubName

CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
# What a tokenizer and a chat template may lie in.
TOKENIZER_FILES = (
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
# What is read beside weights. Never code, never pickles.
BESIDE = (CONFIG, "generation_config.json", *TOKENIZER_FILES, "SHA256SUMS")
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
_PIECE = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_LISTED = 12
_MAX_PIECES = 1024  # a name may claim any number of them


@dataclass(frozen=True, slots=True)
class Choice:
    """The files of a model, and the one to open; None: the folder that they lie in."""

    files: tuple[str, ...]
    entry: str | None


def choose_files(name: HubName, sizes: Mapping[str, int]) -> Choice:
    """The model that `name` means among the files of its repository, file name -> bytes.

    A FILE is the whole name of a file, or a word in the names of GGUF files such as q4_k_m. Without a FILE: config.json
    and the safetensors files of the top folder, else the only GGUF model. Raises
    ModelNotFoundError where that is none, HubError where it is several.
    """
    ggufs = gguf_models(sizes)
    if name.file is None:
        if CONFIG in sizes and (weights := _safetensors(sizes)):
            return Choice((*_beside(sizes), *weights), None)
        # The vision part of a model is no model of its own.
        models = {entry: files for entry, files in ggufs.items() if not _is_projector(entry)}
        return _only(name, models, sizes, "expected one model")
    if name.file in sizes:
        return _named(name, name.file, sizes, ggufs)
    if name.file.lower().endswith((".gguf", ".safetensors")):
        return _only(name, ggufs, sizes, f"expected {name.file!r}", is_found=False)
    word = re.compile(rf"(?<![a-z0-9]){re.escape(name.file.lower())}(?![a-z0-9_])")
    models = {entry: files for entry, files in ggufs.items() if word.search(entry.lower()) and not _is_projector(entry)}
    return _only(name, models or ggufs, sizes, f"expected one that {name.file!r} names", is_found=bool(models))


def gguf_models(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The GGUF models among the files: first file -> all of its files, in their order."""
    models: dict[str, tuple[str, ...]] = {}
    for file in sorted(names):
        if not file.lower().endswith(".gguf"):
            continue
        piece = _PIECE.fullmatch(file)
        if piece is None or int(piece[3]) > _MAX_PIECES:
            models[file] = (file,)
        elif int(piece[2]) == 1:
            end = file[len(piece[1]) + 6 :]
            models[file] = tuple(f"{piece[1]}-{number:05}{end}" for number in range(1, int(piece[3]) + 1))
    return models


def _named(name: HubName, file: str, sizes: Mapping[str, int], ggufs: Mapping[str, tuple[str, ...]]) -> Choice:
    for entry, files in ggufs.items():
        if file in files:
            return _whole(name, files, sizes, entry)
    if file.endswith(".safetensors"):
        return Choice((*_beside(sizes), file), file)
    raise ModelNotFoundError(
        f"{name}: found no model in this file, expected .gguf or .safetensors; other files are not taken"
    )


def _only(
    name: HubName, models: Mapping[str, tuple[str, ...]], sizes: Mapping[str, int], expected: str, is_found: bool = True
) -> Choice:
    if len(models) == 1 and is_found:
        entry, files = next(iter(models.items()))
        return _whole(name, files, sizes, entry)
    if models:
        rows = [f"{entry} ({size(sum(sizes.get(f, 0) for f in files))})" for entry, files in models.items()]
        more = f" and {len(rows) - _LISTED} more" if len(rows) > _LISTED else ""
        message = f"{name}: found {', '.join(rows[:_LISTED])}{more}, {expected}; name one as {name.repo}:FILE"
        raise HubError(message) if is_found else ModelNotFoundError(message)
    if any(file.endswith(_PICKLES) for file in sizes):
        raise ModelNotFoundError(
            f"{name}: found only PyTorch pickles, expected safetensors or GGUF; a pickle can run code when it is "
            "opened: look for another upload of the model"
        )
    raise ModelNotFoundError(
        f"{name}: found {_some(sizes)}, expected safetensors with config.json, or GGUF; take another one"
    )


def _whole(name: HubName, files: tuple[str, ...], sizes: Mapping[str, int], entry: str) -> Choice:
    missing = [file for file in files if file not in sizes]
    if missing:
        raise ModelNotFoundError(
            f"{name}: found {len(files) - len(missing)} of the {len(files)} files of {entry}, expected all; "
            f"{missing[0]} is missing"
        )
    return Choice(files, entry)


def _beside(sizes: Mapping[str, int]) -> list[str]:
    return [file for file in BESIDE if file in sizes]


def _safetensors(sizes: Mapping[str, int]) -> list[str]:
    """The weights: one file, or an index and its shards. Some repositories hold the same weights in other files too."""
    if SINGLE in sizes:
        return [SINGLE]
    shards = sorted(file for file in sizes if _SHARD.fullmatch(file))
    if INDEX in sizes and shards:
        return [INDEX, *shards]
    others = sorted(file for file in sizes if file.endswith(".safetensors") and "/" not in file)
    return [*([INDEX] if INDEX in sizes else []), *others] if others else []


def _is_projector(file: str) -> bool:
    return file.rpartition("/")[2].lower().startswith("mmproj")


def _some(sizes: Mapping[str, int]) -> str:
    names = sorted(sizes)
    return "no file" if not names else ", ".join(names[:4]) + (" ..." if len(names) > 4 else "")
