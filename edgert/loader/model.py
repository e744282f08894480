"""From a path to a model: what its files hold, the graph of its architecture, and where each weight lies."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgert import models
from edgert.config import MAX_INTEGER, ConfigReader
from edgert.errors import FileFormatError, OutOfMemoryError
from edgert.files import Checkpoint, open_checkpoint
from edgert.files.opening import open_binary, read_exactly
from edgert.graph import Graph
from edgert.loader.fewer_experts import use_fewer_experts
from edgert.loader.text_part import text_part
from edgert.loader.views import at_bits
from edgert.loader.weights import WeightSource, find_weights
from edgert.models.gguf_names import GgufHeader

if TYPE_CHECKING:
    from edgert import _core
    from edgert.device.read_size import ReadSize

Progress = Callable[[int, int], None]

MAX_FACTORS = 4096


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
        return sum(source.num_bytes for source in self.weights.values())

    @property
    def largest_file(self) -> Path:
        """The file that tells of the disk on which the model lies."""
        return max(self.checkpoint.real_files, key=lambda file: file.stat().st_size)


def open_model(
    path: str | os.PathLike[str],
    *,
    bits: int | None = None,
    active_experts: int | None = None,
    min_expert_weight: float | None = None,
) -> Model:
    """Opens a GGUF file, a Hugging Face folder or our own, or ORG/NAME[:FILE] in the hub's cache; reads headers only.

    bits: the width of a narrower view (loader/views.py); None: all that is stored. active_experts, min_expert_weight:
    see loader/fewer_experts.py.

    Raises ModelNotFoundError, HubError, FileFormatError, UnsupportedFormatError, UnsupportedModelError, ConfigError, or
    UsageError for a width or experts that there are not.
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
    use_fewer_experts(checkpoint.path, graph, active_experts=active_experts, min_expert_weight=min_expert_weight)
    weights = find_weights(checkpoint, architecture, graph)
    if bits is not None:
        weights = at_bits(checkpoint.path, weights, bits)
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


def start_loading(
    model: Model,
    store: _core.WeightStore,
    *,
    threads: int | None = None,
    set_stream: Callable[[_core.WeightStore], None] | None = None,
    direct_reads: ReadSize | None = None,
) -> None:
    """Adds every weight of the model to the store and begins to read them, in the order of their use.

    threads: that read and pack (None: one for each CPU). set_stream: says which of the weights are not read now.
    direct_reads: past the system's page cache, in these requests; None: through it, where the model stays.

    Raises FileFormatError if the core finds a range that is not in the file, OutOfMemoryError.
    """
    name = str(model.checkpoint.path)
    with _loading_errors(model, lambda: name):
        files = [store.add_file(str(path)) for path in model.checkpoint.real_files]
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
                scale_exponent=source.scale_exponent,
                neuron_bits=source.neuron_bits,
                outliers=[(files[file], offset, length) for file, offset, length in source.outlier_ranges()],
            )
        name = str(model.checkpoint.path)
        if set_stream is not None:
            set_stream(store)
        num_threads = threads or os.cpu_count() or 1
        if direct_reads is None:
            store.start_loading(num_threads)
        else:
            store.start_loading(num_threads, True, chunk_bytes=direct_reads.chunk_bytes, depth=direct_reads.depth)


def finish_loading(model: Model, store: _core.WeightStore, progress: Progress | None = None) -> None:
    """Waits until the weights are in memory; progress(done, total) in bytes.

    Raises FileFormatError if a file cannot be read to its end.
    """
    with _loading_errors(model, lambda: str(model.checkpoint.path)):
        store.finish_loading(progress)


def load_weights(
    model: Model, store: _core.WeightStore, progress: Progress | None = None, *, threads: int | None = None
) -> None:
    """start_loading and finish_loading."""
    start_loading(model, store, threads=threads)
    finish_loading(model, store, progress)


@contextmanager
def _loading_errors(model: Model, where: Callable[[], str]) -> Iterator[None]:
    """The core's errors, as ours. where: the file or tensor that an error is about."""
    from edgert import _core

    try:
        yield
    except MemoryError:
        raise OutOfMemoryError(
            f"{model.checkpoint.path}: the weights take {model.num_bytes} bytes, more than there is; "
            "use a smaller model"
        ) from None
    except (_core.CoreError, OSError) as error:
        raise FileFormatError(f"{where()}: cannot be loaded: {error}") from error


def _config_name(checkpoint: Checkpoint) -> str:
    return str(checkpoint.path if checkpoint.kind == "gguf" else checkpoint.path / "config.json")


def _with_config(checkpoint: Checkpoint) -> tuple[models.Architecture, Checkpoint]:
    """The architecture; for GGUF the checkpoint gets its config.json."""
    source = _config_name(checkpoint)
    if checkpoint.kind != "gguf":
        reader = ConfigReader(checkpoint.config, source)
        model_type = reader.string("model_type")
        architecture = models.get(model_type, source)
        if model_type == architecture.text_of:
            checkpoint = text_part(checkpoint, architecture.model_type)
        return architecture, checkpoint
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
    config = architecture.gguf_config(header)
    return models.get(config["model_type"], source), replace(checkpoint, config=config)


def _read_floats(checkpoint: Checkpoint, name: str) -> list[float]:
    """The values of a short float32 vector."""
    entry = checkpoint.tensors.get(name)
    what = f"{checkpoint.path}: tensor {name!r}"
    if entry is None:
        raise FileFormatError(f"{what}: not found, the metadata needs it; convert the model again")
    if entry.format != "f32" or len(entry.shape) != 1 or entry.shape[0] > MAX_FACTORS:
        raise FileFormatError(f"{what}: found {entry.format} of shape {entry.shape}, expected a short f32 vector")
    path = checkpoint.real_files[entry.file]
    with open_binary(path) as (file, file_bytes):
        if entry.offset + entry.length > file_bytes:
            raise FileFormatError(f"{what}: lies beyond the end of the file; was it changed while it was read?")
        return list(struct.unpack(f"<{entry.shape[0]}f", read_exactly(file, path, entry.offset, entry.length)))


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
