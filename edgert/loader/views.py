"""Views: the weights of a folder of ours at fewer bits than they have, from the leading parts of the same file.

Formats p2 to p7 and c2 to c4 nest (docs/formats.md): the first parts of a tensor are the same tensor, coarser. What a
view leaves out is not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from edgert.errors import UsageError
from edgert.graph import Graph
from edgert.loader.weights import WeightSource
from edgert.quant import format as formats

MIN_BITS, MAX_BITS = 2, 7
_NESTED = re.compile(r"(?P<family>p(?=[2-7]$)|c(?=[2-4]$))(?P<bits>\d)")


def check_bits(bits: int, name: str = "bits") -> None:
    """Raises UsageError for a width that no view has."""
    if type(bits) is not int or not MIN_BITS <= bits <= MAX_BITS:
        raise UsageError(f"{name}: found {bits!r}, expected {MIN_BITS} to {MAX_BITS}")


def stored_bits(source: WeightSource) -> int | None:
    """The width of the codes that a weight's file has; None where they do not nest."""
    match = _NESTED.fullmatch(source.entry.format) if source.entry.parts else None
    return int(match["bits"]) if match else None


def at_bits(path: Path, weights: Mapping[str, WeightSource], bits: int) -> dict[str, WeightSource]:
    """The weights, those that nest at no more than `bits` bits; the others, such as norms and routers, as they are.

    Raises UsageError for another width than 2 to 7, where no weight nests, and where none is stored that wide.
    """
    check_bits(bits)
    stored = {width for source in weights.values() if (width := stored_bits(source))}
    if not stored:
        found = sorted({source.entry.format for source in weights.values() if source.cols})
        raise UsageError(
            f"{path}: bits: found weights in {', '.join(found)}, expected p2 to p7 or c2 to c4, which can be read at "
            "fewer bits; leave --bits out, or convert the model with -q c4"
        )
    if bits > max(stored):
        raise UsageError(
            f"{path}: bits: found {bits}, expected at most the {max(stored)} that are stored; "
            "leave --bits out, or convert the original with more"
        )
    return {name: _view(source, bits) for name, source in weights.items()}


def check_miss_bits(path: Path, graph: Graph, weights: Mapping[str, WeightSource], miss_bits: int) -> None:
    """Raises UsageError where no expert of the graph nests, or none is read at more bits than these."""
    experts = [weights[name] for node in graph.nodes if node.op == "moe" for name in node.weights]
    if not experts:
        raise UsageError(
            f"{path}: miss_bits: found a model without experts, expected a mixture of experts; leave --miss-bits out"
        )
    widths = {width for source in experts if (width := stored_bits(source))}
    if not widths:
        found = sorted({source.entry.format for source in experts})
        raise UsageError(
            f"{path}: miss_bits: found experts in {', '.join(found)}, expected p3 to p7, c3 or c4, whose leading parts "
            "are experts of fewer bits; leave --miss-bits out, or convert the model with -q c4"
        )
    if miss_bits >= max(widths):
        raise UsageError(
            f"{path}: miss_bits: found {miss_bits}, expected fewer than the {max(widths)} that experts are read with; "
            "leave --miss-bits out"
        )


def _view(source: WeightSource, bits: int) -> WeightSource:
    width = stored_bits(source)
    if width is None or width <= bits:
        return source
    entry = source.entry
    family = entry.format[0]
    # Every part but the planes that are left out. Outliers stay: they hold what a code lacks of its weight.
    parts = entry.parts
    if not source.neuron_bits:  # a record is read whole
        parts = parts[: len(formats.get(f"{family}{bits}").spec.parts)]
    num_bytes = sum(part.length for part in parts + entry.outliers)
    narrow = replace(entry, format=f"{family}{bits}", parts=parts, length=num_bytes)
    # A cell of a uniform grid is as wide as the cells that it holds; a codebook has a table for each width.
    return replace(
        source,
        entry=narrow,
        stored_format=entry.format,
        scale_exponent=width - bits if family == "p" else 0,
    )
