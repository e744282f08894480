"""How often the neurons of a model are active, counted on a text and kept in the model's folder (docs/formats.md)."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgert.config import shown
from edgert.engine.offload_items import weight_items
from edgert.errors import FileFormatError, UnsupportedFormatError
from edgert.files.opening import is_there, open_binary, read_exactly
from edgert.files.safetensors import read_safetensors
from edgert.loader import Model
from edgert.whole_file import written_whole

FILE_NAME = "neurons.safetensors"
VERSION = "1"
_VERSION_KEY, _TOKENS_KEY = "edgert.neurons_version", "edgert.num_tokens"
# The data begins on a multiple of this.
_ALIGNMENT = 64


def counted_matrices(model: Model) -> dict[str, int]:
    """Neurons of each matrix that lies neuron by neuron, in the order of use; nothing where the file has none."""
    return {item.name: item.records.count for item in weight_items(model) if item.records is not None}


def save(folder: Path, frequency: Mapping[str, NDArray[np.float32]], num_tokens: int) -> Path:
    """Writes the file whole, or leaves what was there; returns its path.

    frequency: of each matrix the share of the tokens that activated each of its neurons.
    """
    path, position = folder / FILE_NAME, 0
    header: dict[str, object] = {"__metadata__": {_VERSION_KEY: VERSION, _TOKENS_KEY: str(num_tokens)}}
    for name, shares in frequency.items():
        end = position + 4 * len(shares)
        header[name] = {"dtype": "F32", "shape": [len(shares)], "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    with written_whole(path) as unfinished, unfinished.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for shares in frequency.values():
            file.write(shares.astype("<f4").tobytes())
    return path


def load(model: Model) -> dict[str, NDArray[np.float32]]:
    """What `save` wrote for this model; nothing where it never did.

    Raises FileFormatError for anything else.
    """
    path = model.checkpoint.path / FILE_NAME
    if model.checkpoint.kind != "edgert" or not is_there(path):
        return {}
    remedy = f"delete it, or count again: edgert neurons {model.checkpoint.path} --text FILE"
    try:
        header = read_safetensors(path)
    except (FileFormatError, UnsupportedFormatError) as error:
        reason = str(error).removeprefix(f"{path}: ").partition("; ")[0]
        raise FileFormatError(f"{path}: found no frequencies of neurons ({reason}); {remedy}") from None
    if header.metadata.get(_VERSION_KEY) != VERSION:
        found = shown(header.metadata.get(_VERSION_KEY))
        raise FileFormatError(f"{path}: {_VERSION_KEY}: found {found}, expected {VERSION!r}; {remedy}")
    expected = counted_matrices(model)
    found_shapes = {name: (entry.format, entry.shape) for name, entry in header.tensors.items()}
    if found_shapes != {name: ("f32", (count,)) for name, count in expected.items()}:
        raise FileFormatError(
            f"{path}: found {_shapes(found_shapes)}, expected f32 of {_counts(expected)} as in the model; {remedy}"
        )
    frequency = {}
    with open_binary(path) as (file, _):
        for name in expected:
            entry = header.tensors[name]
            shares = np.frombuffer(read_exactly(file, path, entry.offset, entry.length), "<f4")
            if not ((shares >= 0) & (shares <= 1)).all():
                raise FileFormatError(f"{path}: {name!r}: found a value that is not from 0 to 1; {remedy}")
            frequency[name] = shares
    return frequency


def _shapes(found: Mapping[str, tuple[str, tuple[int, ...]]]) -> str:
    kinds = sorted({f"{format_name} {list(shape)}" for format_name, shape in found.values()})
    return f"{len(found)} tensors ({', '.join(kinds[:4])})"


def _counts(expected: Mapping[str, int]) -> str:
    return f"{' or '.join(map(str, sorted(set(expected.values()))))} values for each of {len(expected)} matrices"
