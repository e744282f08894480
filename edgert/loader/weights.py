"""Where each weight of a graph lies in a checkpoint: found by name, held against the expected shape and format."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from edgert.errors import FileFormatError, UnsupportedFormatError
from edgert.files import Checkpoint, TensorEntry
from edgert.graph import Graph, WeightSpec
from edgert.models import Architecture
from edgert.models.gguf_names import UNUSED, TensorPlace
from edgert.quant import format as formats
from edgert.quant import neurons, outliers
from edgert.quant.format import FormatSpec

# Left in checkpoints by old versions of transformers; the values follow from the configuration.
_UNUSED_BUFFERS = re.compile(r".*\.rotary_emb\.inv_freq")
_SPECS: dict[str, FormatSpec] = {name: formats.get(name).spec for name in formats.names()}
_EXPERT = re.compile(r"(.+\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSource:
    """A weight of the graph, and the tensor that holds it.

    name: as the graph says it (Hugging Face's spelling). rows x cols: its shape; cols is 0 for a vector of `rows`.
    index: which matrix of a stacked 3-D tensor, from row `first_row` of that matrix on; None: the tensor itself.
    row_order "unpermute_rope": row h * head + t * head / 2 + j is row h * head + 2 * j + t of the file, where head is
    rows / heads. stored_format: that of the file, where this is a view at fewer bits (loader/views.py); `entry` is then
    the view, and its scales are those of the file times 2^scale_exponent.
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
    stored_format: str | None = None
    scale_exponent: int = 0

    @property
    def format_name(self) -> str:
        """The format; of a view that of the file and its width: c4@2."""
        return f"{self.stored_format}@{self.entry.format[1:]}" if self.stored_format else self.entry.format

    @property
    def neuron_bits(self) -> int:
        """Bits of a code in the file, where the codes lie neuron by neuron; else 0."""
        is_by_neuron = self.entry.parts and self.entry.parts[-1].name == neurons.PART_NAME
        return neurons.code_bits(self.stored_format or self.entry.format) if is_by_neuron else 0

    @property
    def record_bytes(self) -> int:
        """Bytes of a neuron's record; 0 where there are none."""
        return neurons.record_bytes(self.neuron_bits, self.rows)

    @property
    def is_vector(self) -> bool:
        return self.cols == 0

    def ranges(self) -> list[tuple[int, int, int]]:
        """(file, offset, length) of the format's parts in bytes; one range of whole rows where it is not packed."""
        entry = self.entry
        if entry.parts:
            return [(entry.file, part.offset, part.length) for part in entry.parts]
        if self.is_vector:
            return [(entry.file, entry.offset, entry.length)]
        row = formats.row_bytes(_SPECS[entry.format], self.cols)
        first = self.first_row + (self.index or 0) * (entry.shape[-2] if self.index is not None else 0)
        return [(entry.file, entry.offset + first * row, self.rows * row)]

    def outlier_ranges(self) -> list[tuple[int, int, int]]:
        """The same of the outliers' parts; empty where there are none."""
        return [(self.entry.file, part.offset, part.length) for part in self.entry.outliers]

    @property
    def num_bytes(self) -> int:
        """Bytes of the files that are read for it."""
        return sum(length for _, _, length in self.ranges() + self.outlier_ranges())


def find_weights(checkpoint: Checkpoint, architecture: Architecture, graph: Graph) -> dict[str, WeightSource]:
    """A source for every weight of the graph; each tensor of the files must be used, and used wholly."""
    weights: dict[str, WeightSource] = {}
    missing: dict[str, None] = {}  # several weights may lie in one tensor
    for spec in graph.weights.values():
        place = _place(checkpoint, architecture, spec)
        entry = checkpoint.tensors.get(place.tensor)
        if entry is None:
            missing[place.tensor] = None
        else:
            weights[spec.name] = _source(checkpoint, spec, _with_first_row(place, graph), entry)
    if missing:
        raise FileFormatError(
            f"{checkpoint.path}: {_listed(list(missing))} not found, the configuration needs "
            f"{'it' if len(missing) == 1 else 'them'}; download the model again"
        )
    _check_coverage(checkpoint, weights.values())
    return weights


def _place(checkpoint: Checkpoint, architecture: Architecture, spec: WeightSpec) -> TensorPlace:
    """Where the files must hold a weight."""
    if checkpoint.kind == "gguf":
        config = checkpoint.config
        place = architecture.gguf.place(spec.name, config["num_attention_heads"], config["num_key_value_heads"])
        place = place or TensorPlace(spec.name)
        if place.expert is not None and place.tensor not in checkpoint.tensors:
            # Files from before April 2024 have a tensor for each expert: blk.0.ffn_up.3.weight.
            alone = place.tensor.replace("_exps.", f".{place.expert}.")
            return TensorPlace(alone) if alone in checkpoint.tensors else place
        return place
    if spec.name in checkpoint.tensors:
        return TensorPlace(spec.name)
    other = architecture.place(spec.name)
    if other and other.tensor in checkpoint.tensors:
        return other
    match = _EXPERT.fullmatch(spec.name)
    if match:
        prefix, expert, matrix = match[1], int(match[2]), match[3]
        if f"{prefix}.gate_up_proj" in checkpoint.tensors:
            first_row = spec.rows if matrix == "up" else 0
            tensor = f"{prefix}.down_proj" if matrix == "down" else f"{prefix}.gate_up_proj"
            return TensorPlace(tensor, expert=expert, first_row=first_row)
    return TensorPlace(spec.name)


def _with_first_row(place: TensorPlace, graph: Graph) -> TensorPlace:
    """The place with its first row, where other weights lie before it in the tensor."""
    before = sum(graph.weights[name].rows for name in place.after)
    return replace(place, first_row=place.first_row + before)


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
    elif place.is_slice:
        # Rows of a matrix; that all its rows are used, and once, is checked at the end.
        fits = len(entry.shape) == 2 and spec.cols == entry.shape[1] and not entry.parts
        fits = fits and place.first_row + spec.rows <= entry.shape[0]
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
    """The core must know the format, and the bytes must be those of the shape."""
    what = f"{path}: tensor {entry.name!r}"
    found = _SPECS.get(entry.format)
    if found is None or not _can_hold(found, spec, bool(entry.parts)):
        known = [name for name, known in _SPECS.items() if _can_hold(known, spec, bool(entry.parts))]
        raise UnsupportedFormatError(
            f"{what}: found type {entry.format[:40]}, expected one of {', '.join(known)}; use the model in one of these"
        )
    if not entry.parts:
        formats.row_bytes(found, spec.cols or 1)  # raises where the columns do not fill whole blocks
        return
    names, sizes = [p.name for p in found.parts], formats.part_bytes(found, spec.rows, spec.cols)
    if entry.parts[-1].name == neurons.PART_NAME and neurons.code_bits(found.name):
        names = [*(p.name for p in neurons.scale_parts(found)), neurons.PART_NAME]
        sizes = neurons.part_bytes(found, spec.rows, spec.cols)
    expected = list(zip(names, sizes, strict=True))
    if [(part.name, part.length) for part in entry.parts] != expected:
        parts = ", ".join(f"{part.name[:20]!r} of {part.length} bytes" for part in entry.parts)
        raise FileFormatError(
            f"{what}: found parts {parts}, expected {', '.join(f'{n!r} of {b} bytes' for n, b in expected)}; "
            "convert the model again"
        )
    if entry.outliers:
        _check_outliers(what, spec, entry)


def _check_outliers(what: str, spec: WeightSpec, entry: TensorEntry) -> None:
    """Which parts there are, and that their bytes are those of the rows and of one number of outliers."""
    num_outliers = entry.outliers[1].length // 2 if len(entry.outliers) > 1 else 0
    expected = list(zip(outliers.PART_NAMES, outliers.part_bytes(spec.rows, num_outliers), strict=True))
    if [(part.name, part.length) for part in entry.outliers] != expected:
        parts = ", ".join(f"{part.name[:20]!r} of {part.length} bytes" for part in entry.outliers)
        raise FileFormatError(
            f"{what}: found parts {parts}, expected {', '.join(f'{n!r} of {b} bytes' for n, b in expected)}; "
            "convert the model again"
        )
    if num_outliers > spec.rows * spec.cols:
        raise FileFormatError(
            f"{what}: found {num_outliers} outliers, expected at most {spec.rows} x {spec.cols}; "
            "convert the model again"
        )
    if spec.cols > outliers.MAX_COLUMNS:
        raise FileFormatError(
            f"{what}: found outliers in {spec.cols} columns, expected at most {outliers.MAX_COLUMNS}; "
            "convert the model without them"
        )


def _can_hold(found: FormatSpec, spec: WeightSpec, is_packed: bool) -> bool:
    """Vectors are floats; matrices are floats or blocks, or packed parts in a folder of ours."""
    if found.is_float:
        return not is_packed
    return spec.cols > 0 and (is_packed or found.block_columns > 0)


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
