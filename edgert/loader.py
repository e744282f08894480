"""From a path to a model: what its files hold, the graph of its architecture, and where each weight lies."""

from __future__ import annotations

import math
import os
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edgert import models
from edgert.config import MAX_INTEGER, ConfigReader
from edgert.errors import FileFormatError, OutOfMemoryError, UnsupportedFormatError
from edgert.files import Checkpoint, TensorEntry, open_checkpoint
from edgert.files.opening import open_binary, read_exactly
from edgert.files.tensor_types import ROW_FORMATS, row_bytes
from edgert.graph import Graph, WeightSpec
from edgert.models.gguf_names import UNUSED, GgufHeader, TensorPlace

if TYPE_CHECKING:
    from edgert import _core

Progress = Callable[[int, int], None]

VECTOR_FORMATS = ("f32", "f16", "bf16")
MAX_FACTORS = 4096

# Left in checkpoints by old versions of transformers; the values follow from the configuration.
_UNUSED_BUFFERS = re.compile(r".*\.rotary_emb\.inv_freq")
_EXPERT = re.compile(r"(.+\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSource:
    """A weight of the graph, and the tensor that holds it.

    name: as the graph says it (Hugging Face's spelling). rows x cols: its shape; cols is 0 for a vector of `rows`.
    index: which matrix of a stacked 3-D tensor, from row `first_row` of that matrix on; None: the tensor itself.
    row_order "unpermute_rope": row h * head + t * head / 2 + j is row h * head + 2 * j + t of the file, where head is
    rows / heads.
    """

    name: str
    entry: TensorEntry
    rows: int
    cols: int
    role: str
    index: int | None = None
    first_row: int = 0
    row_order: Literal["as_is", "unpermute_rope"] = "as_is"
    heads: int = 0

    @property
    def is_vector(self) -> bool:
        return self.cols == 0

    def ranges(self) -> list[tuple[int, int, int]]:
        """(file, offset, length) of each part in bytes; one range of whole rows where the tensor is not packed."""
        entry = self.entry
        if entry.parts:
            return [(entry.file, part.offset, part.length) for part in entry.parts]
        if self.is_vector:
            return [(entry.file, entry.offset, entry.length)]
        row = row_bytes(entry.format, self.cols)
        first = self.first_row + (self.index or 0) * (entry.shape[-2] if self.index is not None else 0)
        return [(entry.file, entry.offset + first * row, self.rows * row)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """An opened model; no weight has been read. config: config.json, rebuilt from the metadata for a GGUF file.

    weights: in the order in which the graph uses them. stop_tokens: ids that end a text, ascending.
    context_length: positions that the model is meant for.
    """

    checkpoint: Checkpoint
    config: dict[str, Any]
    model_type: str
    graph: Graph
    weights: dict[str, WeightSource]
    stop_tokens: tuple[int, ...]
    context_length: int
    vocab_size: int

    @property
    def num_bytes(self) -> int:
        """Bytes of all weights in the files."""
        return sum(length for source in self.weights.values() for _, _, length in source.ranges())


def open_model(path: str | os.PathLike[str]) -> Model:
    """Opens a GGUF file, a Hugging Face folder or our own; reads headers only.

    Raises ModelNotFoundError, FileFormatError, UnsupportedFormatError, UnsupportedModelError or ConfigError.
    """
    checkpoint = open_checkpoint(path)
    architecture, checkpoint = _with_config(checkpoint)
    reader = ConfigReader(checkpoint.config, _config_name(checkpoint))
    config = architecture.read_config(reader)
    layers = reader.integer("num_hidden_layers")
    if layers > len(checkpoint.tensors):
        raise reader.error("num_hidden_layers", layers, f"no more layers than the {len(checkpoint.tensors)} tensors")
    graph = Graph()
    graph.output(architecture.build(graph, config))
    weights = _find_weights(checkpoint, architecture, graph)
    vocab_size = reader.integer("vocab_size")
    return Model(
        checkpoint=checkpoint,
        config=checkpoint.config,
        model_type=architecture.model_type,
        graph=graph,
        weights=weights,
        stop_tokens=_stop_tokens(checkpoint, vocab_size),
        context_length=_context_length(reader, graph),
        vocab_size=vocab_size,
    )


def load_weights(
    model: Model, store: _core.WeightStore, progress: Progress | None = None, *, threads: int | None = None
) -> None:
    """Adds every weight of the model to the store and reads them; progress(done, total) in bytes.

    threads: that read and pack (None: one for each CPU).

    Raises FileFormatError if the core finds a range that is not in the file, OutOfMemoryError.
    """
    from edgert import _core

    name = str(model.checkpoint.path)
    try:
        files = [store.add_file(str(path)) for path in model.checkpoint.files]
        for source in model.weights.values():
            name = f"{model.checkpoint.files[source.entry.file]}: {source.entry.name}"
            store.add(
                source.name,
                source.entry.format,
                source.rows,
                source.cols,
                [(files[file], offset, length) for file, offset, length in source.ranges()],
                is_packed=bool(source.entry.parts),
                unpermute_heads=source.heads,
            )
        name = str(model.checkpoint.path)
        store.load(threads or os.cpu_count() or 1, progress)
    except MemoryError:
        raise OutOfMemoryError(
            f"{model.checkpoint.path}: the weights take {model.num_bytes} bytes, more than there is; "
            "use a smaller model"
        ) from None
    except (_core.CoreError, OSError) as error:
        raise FileFormatError(f"{name}: cannot be loaded: {error}") from error


def _config_name(checkpoint: Checkpoint) -> str:
    return str(checkpoint.path if checkpoint.kind == "gguf" else checkpoint.path / "config.json")


def _with_config(checkpoint: Checkpoint) -> tuple[models.Architecture, Checkpoint]:
    """The architecture; for GGUF the checkpoint gets its config.json."""
    source = _config_name(checkpoint)
    if checkpoint.kind != "gguf":
        reader = ConfigReader(checkpoint.config, source)
        return models.get(reader.string("model_type"), source), checkpoint
    name = ConfigReader(checkpoint.metadata, source).string("general.architecture")
    architecture = models.get_gguf(name, source)
    if not checkpoint.tensors:
        raise FileFormatError(
            f"{source}: found a vocabulary and no weights, expected a model; give a whole model's file"
        )
    header = GgufHeader(
        source=source,
        architecture=name,
        metadata=checkpoint.metadata,
        shapes={tensor: entry.shape for tensor, entry in checkpoint.tensors.items()},
        floats=lambda tensor: _read_floats(checkpoint, tensor),
    )
    return architecture, replace(checkpoint, config=architecture.gguf_config(header))


def _read_floats(checkpoint: Checkpoint, name: str) -> list[float]:
    """The values of a short float32 vector."""
    entry = checkpoint.tensors.get(name)
    what = f"{checkpoint.path}: tensor {name!r}"
    if entry is None:
        raise FileFormatError(f"{what}: not found, the metadata needs it; convert the model again")
    if entry.format != "f32" or len(entry.shape) != 1 or entry.shape[0] > MAX_FACTORS:
        raise FileFormatError(f"{what}: found {entry.format} of shape {entry.shape}, expected a short f32 vector")
    path = checkpoint.files[entry.file]
    with open_binary(path) as (file, file_bytes):
        if entry.offset + entry.length > file_bytes:
            raise FileFormatError(f"{what}: lies beyond the end of the file; was it changed while it was read?")
        return list(struct.unpack(f"<{entry.shape[0]}f", read_exactly(file, path, entry.offset, entry.length)))


def _find_weights(checkpoint: Checkpoint, architecture: models.Architecture, graph: Graph) -> dict[str, WeightSource]:
    """A source for every weight of the graph; each tensor of the files must be used, and used wholly."""
    weights: dict[str, WeightSource] = {}
    missing: list[str] = []
    for spec in graph.weights.values():
        place = _place(checkpoint, architecture, spec)
        entry = checkpoint.tensors.get(place.tensor)
        if entry is None:
            missing.append(place.tensor)
        else:
            weights[spec.name] = _source(checkpoint, spec, place, entry)
    if missing:
        raise FileFormatError(
            f"{checkpoint.path}: {_listed(missing)} not found, the configuration needs "
            f"{'it' if len(missing) == 1 else 'them'}; download the model again"
        )
    _check_coverage(checkpoint, weights.values())
    return weights


def _place(checkpoint: Checkpoint, architecture: models.Architecture, spec: WeightSpec) -> TensorPlace:
    """Where the files must hold a weight."""
    if checkpoint.kind == "gguf":
        config = checkpoint.config
        place = architecture.gguf.place(spec.name, config["num_attention_heads"], config["num_key_value_heads"])
        return place or TensorPlace(spec.name)
    match = _EXPERT.fullmatch(spec.name)
    if match and spec.name not in checkpoint.tensors:
        prefix, expert, matrix = match[1], int(match[2]), match[3]
        if f"{prefix}.gate_up_proj" in checkpoint.tensors:
            first_row = spec.rows if matrix == "up" else 0
            tensor = f"{prefix}.down_proj" if matrix == "down" else f"{prefix}.gate_up_proj"
            return TensorPlace(tensor, expert=expert, first_row=first_row)
    return TensorPlace(spec.name)


def _source(checkpoint: Checkpoint, spec: WeightSpec, place: TensorPlace, entry: TensorEntry) -> WeightSource:
    path = checkpoint.files[entry.file]
    expected: tuple[int, ...] = (spec.rows, spec.cols) if spec.cols else (spec.rows,)
    if place.expert is not None and len(entry.shape) == 3:
        # Stacked: experts x rows x cols, where gate and up may lie in one matrix of twice the rows.
        fits = (
            place.expert < entry.shape[0]
            and entry.shape[2] == spec.cols
            and entry.shape[1]
            in (
                spec.rows,
                2 * spec.rows,
            )
        )
    else:
        fits = place.expert is None and entry.shape == expected
    if not fits:
        raise FileFormatError(
            f"{path}: tensor {entry.name!r}: found shape {list(entry.shape)}, expected {list(expected)}"
            f"{f' for expert {place.expert}' if place.expert is not None else ''}; it belongs to another configuration"
        )
    _check_format(path, spec, entry)
    return WeightSource(
        name=spec.name,
        entry=entry,
        rows=spec.rows,
        cols=spec.cols,
        role=spec.role,
        index=place.expert,
        first_row=place.first_row,
        row_order="unpermute_rope" if place.permuted_heads else "as_is",
        heads=place.permuted_heads,
    )


def _check_format(path: Path, spec: WeightSpec, entry: TensorEntry) -> None:
    supported = list(VECTOR_FORMATS if not spec.cols else ROW_FORMATS)
    if entry.parts and spec.cols:
        return  # the core knows the packed formats, and checks the length of every part
    if entry.format not in supported:
        raise UnsupportedFormatError(
            f"{path}: tensor {entry.name!r}: found type {entry.format}, expected one of {', '.join(supported)}; "
            "use the model in such a format"
        )
    if spec.cols % ROW_FORMATS[entry.format][0]:
        raise FileFormatError(f"{path}: tensor {entry.name!r}: found {spec.cols} columns in {entry.format} blocks")


def _check_coverage(checkpoint: Checkpoint, weights: Iterable[WeightSource]) -> None:
    """A tensor that the graph does not read would change the result if it were read: refuse it."""
    used: Counter[str] = Counter()
    for source in weights:
        used[source.entry.name] += source.rows * max(source.cols, 1)
    is_tied = checkpoint.config.get("tie_word_embeddings") is True
    extra = [
        name
        for name in checkpoint.tensors
        if name not in used
        and not _UNUSED_BUFFERS.fullmatch(name)
        and not (checkpoint.kind == "gguf" and UNUSED.fullmatch(name))
        and not (is_tied and name == "lm_head.weight")
    ]
    if extra:
        raise FileFormatError(
            f"{checkpoint.path}: {_listed(extra)} found, the architecture does not use "
            f"{'it' if len(extra) == 1 else 'them'}; this model needs another architecture than its configuration says"
        )
    for name, count in used.items():
        if count != math.prod(checkpoint.tensors[name].shape):
            raise FileFormatError(
                f"{checkpoint.path}: tensor {name!r}: found shape {list(checkpoint.tensors[name].shape)}, "
                f"expected {count} values; it belongs to another configuration"
            )


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name[:120]) for name in names[:3])
    return (
        f"tensor {shown}" if len(names) == 1 else f"{len(names)} tensors ({shown}{', ...' if len(names) > 3 else ''})"
    )


def _stop_tokens(checkpoint: Checkpoint, vocab_size: int) -> tuple[int, ...]:
    """The union of all end tokens that the files name; -1 and ids beyond the vocabulary mean none."""
    found: set[int] = set()
    for values, name in ((checkpoint.generation_config, "generation_config.json"), (checkpoint.config, "config.json")):
        reader = ConfigReader(values, f"{checkpoint.path}: {name}")
        found.update(reader.integers("eos_token_id", minimum=-(2**31), maximum=2**32))
    return tuple(sorted(token for token in found if 0 <= token < vocab_size))


def _context_length(reader: ConfigReader, graph: Graph) -> int:
    """max_position_embeddings, or what YaRN extends the trained length to."""
    length = reader.integer("max_position_embeddings", default=2048)
    for rope in graph.ropes:
        if rope.scaling.get("rope_type") == "yarn":
            length = max(length, int(rope.scaling["original_max_position_embeddings"] * rope.scaling["factor"]))
    return min(length, MAX_INTEGER)
