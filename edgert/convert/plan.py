"""What a conversion will do with each tensor, decided before anything is written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from edgert.errors import ConvertError, UnsupportedFormatError, UsageError
from edgert.loader import Model, WeightSource
from edgert.quant import format as formats
from edgert.quant import neurons, outliers
from edgert.quant.container import ContainerPlan, ContainerTensor, group_units, plan_container
from edgert.quant.quantizers import TARGETS

_Q_BITS = {bits: f"p{bits}" for bits in range(1, 9)}
DEFAULT_TARGET = "c4"
KEEP = "keep"  # the name for "as it is"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPlan:
    """One tensor: where it comes from, the format that it gets, and why (it fell back: not the one asked for).

    outlier_share: of the weights that lie beside it in float16. is_by_neuron: its codes lie column by column.
    """

    source: WeightSource
    format: str
    reason: str
    is_fallback: bool = False
    outlier_share: float = 0.0
    is_by_neuron: bool = False

    @property
    def is_copy(self) -> bool:
        """The values stay as they are (ggml blocks are only put into another order)."""
        return self.format == self.source.entry.format

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.source.rows, self.source.cols) if self.source.cols else (self.source.rows,)

    def num_outliers(self, rows: int) -> int:
        """Those of the first `rows` rows."""
        return outliers.count(rows, self.source.cols, self.outlier_share) if self.outlier_share else 0

    @property
    def source_bytes(self) -> int:
        spec = formats.get(self.source.entry.format).spec
        columns = self.source.cols or self.source.rows
        return (self.source.rows if self.source.cols else 1) * formats.row_bytes(spec, columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertPlan:
    """A whole conversion. `str()` is a table for people."""

    source: Path
    target: str | None
    tensors: tuple[TensorPlan, ...]
    container: ContainerPlan

    @property
    def source_bytes(self) -> int:
        return sum(t.source_bytes for t in self.tensors)

    @property
    def notes(self) -> tuple[str, ...]:
        """What did not go as asked: one line for each tensor that fell back."""
        return tuple(
            f"{t.source.name}: {t.format} instead of {self.target}: {t.reason}" for t in self.tensors if t.is_fallback
        )

    def __str__(self) -> str:
        lines = [f"{self.source} -> {self.target or 'as it is'}, {self.container.file_bytes:,} bytes"]
        lines += [
            f"  {t.source.name}  {'x'.join(map(str, t.shape))}  {t.source.entry.format} -> {t.format}  ({t.reason})"
            for t in self.tensors
        ]
        return "\n".join(lines)


def target_format(quant: str | None, q_bits: int | None) -> str | None:
    """The format that -q NAME or --q-bits N asks for, c4 without either; None: everything stays as it is.

    Raises UsageError if both are given or none has that name.
    """
    if quant is not None and q_bits is not None:
        raise UsageError(f"target: found both -q {quant} and --q-bits {q_bits}, expected one; drop the other")
    if q_bits is not None:
        if q_bits not in _Q_BITS:
            raise UsageError(f"--q-bits: found {q_bits}, expected one of {', '.join(map(str, _Q_BITS))}")
        return _Q_BITS[q_bits]
    if quant == KEEP:
        return None
    if quant is not None and quant not in TARGETS:
        raise UsageError(
            f"target format: found {quant!r}, expected {KEEP} or one of {', '.join(TARGETS)}; pass one of them to -q"
        )
    return quant or DEFAULT_TARGET


def check_outlier_share(share: float | None, target: str | None) -> float:
    """The share that --outliers asks for, 0 without it.

    Raises UsageError for one that is out of range, and for a target that rounds no weight to codes.
    """
    if share is None:
        return 0.0
    if not 0 < share <= outliers.MAX_SHARE:
        raise UsageError(f"--outliers: found {share:g}, expected more than 0 and at most {outliers.MAX_SHARE:g}")
    if target is None or formats.get(target).spec.is_float:
        raise UsageError(
            f"--outliers: found it with -q {target or KEEP}, expected a format that quantises; drop it, or use -q p2"
        )
    return share


def plan_conversion(
    model: Model, target: str | None, *, keep_quantised: bool = False, outlier_share: float = 0.0
) -> ConvertPlan:
    """What becomes of each weight that the model's graph names.

    target: a format of `TARGETS` for every matrix but routers, or None: everything stays as it is. keep_quantised: the
    target is for float matrices only, as quantising twice loses twice. outlier_share: of the weights of each matrix
    that is quantised, those that lie beside it.
    Raises ConvertError for a folder that edgert made, UnsupportedFormatError for a tensor whose type cannot be read.
    """
    if model.checkpoint.kind == "edgert":
        _check_own_folder(model, target)
    planned = (_plan_tensor(source, target, keep_quantised) for source in model.weights.values())
    sparse = _behind_zeros(model)
    tensors = tuple(
        replace(
            _with_outliers(tensor, outlier_share),
            is_by_neuron=tensor.source.name in sparse and neurons.code_bits(tensor.format) > 0,
        )
        for tensor in planned
    )
    container = plan_container(group_units(_container_tensor(t) for t in tensors))
    return ConvertPlan(source=model.checkpoint.path, target=target, tensors=tensors, container=container)


def _behind_zeros(model: Model) -> frozenset[str]:
    """Matrices whose input is mostly 0: only some of their columns are needed for a token."""
    nodes = model.graph.nodes
    return frozenset(node.weights[0] for node in nodes if node.op == "linear" and nodes[node.inputs[0]].op == "relu2")


def _check_own_folder(model: Model, target: str | None) -> None:
    """Our folder may be converted again only from floats to something smaller."""
    path = model.checkpoint.path
    if target is None:
        raise ConvertError(
            f"{path}: found a folder that edgert made, expected another kind; copy it, or use -q with a format"
        )
    for source in model.weights.values():
        if source.entry.format in formats.names() and not formats.get(source.entry.format).spec.is_float:
            raise ConvertError(
                f"{path}: {source.name}: found {source.entry.format}, expected floats; convert the original"
            )


def _plan_tensor(source: WeightSource, target: str | None, keep_quantised: bool) -> TensorPlan:
    found = source.entry.format
    if found not in formats.names():
        raise UnsupportedFormatError(
            f"{source.name}: found type {found!r}, expected one of {', '.join(formats.names())}; "
            "convert the model from a file in one of these"
        )
    if not source.cols:
        return TensorPlan(source=source, format=found, reason="vector, as it is")
    if source.role == "router":
        return TensorPlan(source=source, format=found, reason="router, never quantised")
    if target is None:
        return TensorPlan(source=source, format=found, reason="as it is")
    if keep_quantised and not formats.get(found).spec.is_float:
        return TensorPlan(source=source, format=found, reason="quantised already, as it is")
    if found == target:
        return TensorPlan(source=source, format=found, reason=f"is {target} already")
    fitting = _fitting(target, source.cols)
    if fitting == target:
        return TensorPlan(source=source, format=target, reason="asked for")
    reason = f"{source.cols} columns are not a multiple of {formats.get(target).spec.block_columns}"
    return TensorPlan(source=source, format=fitting, reason=reason, is_fallback=True)


def _with_outliers(tensor: TensorPlan, share: float) -> TensorPlan:
    cols = tensor.source.cols
    if tensor.is_copy or formats.get(tensor.format).spec.is_float or not outliers.count(tensor.shape[0], cols, share):
        return tensor
    if cols > outliers.MAX_COLUMNS:
        return replace(tensor, reason=f"{tensor.reason}, no outliers in more than {outliers.MAX_COLUMNS} columns")
    return replace(tensor, outlier_share=share)


def _fitting(target: str, cols: int) -> str:
    """The target, or q8_0, or f16: the first whose blocks the columns fill."""
    for name in (target, "q8_0"):
        if cols % (formats.get(name).spec.block_columns or 1) == 0:
            return name
    return "f16"


def _container_tensor(tensor: TensorPlan) -> ContainerTensor:
    num_outliers = tensor.num_outliers(tensor.shape[0])
    return ContainerTensor(
        tensor.source.name, tensor.format, tensor.shape, tensor.source.role, num_outliers, tensor.is_by_neuron
    )
