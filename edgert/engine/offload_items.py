"""What placement has to know of a model: its weights as values, and the memory that everything else takes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from edgert.engine.kv_plan import PAGE_TOKENS
from edgert.files import Checkpoint
from edgert.graph import Graph, Node
from edgert.loader import Model, WeightSource
from edgert.offload import WeightItem
from edgert.offload.pieces import Kind, Records
from edgert.quant import format as formats
from edgert.quant.layout import GROUP_COLUMNS, STRIP_ROWS, num_strips

# Interpreter, numpy, our core and what else is imported, threads and their stacks: assumed, not measured.
PROGRAM_BYTES = 64 << 20
# A tokenizer in memory, against its file.
TOKENIZER_FACTOR = 3
# Of a budget: what the default context may take.
KV_SHARE = 1 / 8
MIN_CONTEXT = 256

_LAYER = re.compile(r"model\.layers\.(\d+)\.")
_ARENA_ALIGNMENT = 64
_OUTLIER_BYTES = 8  # in memory: value, column, row
# Codes of 64 activations in the core: a byte each, scales for each 32, sums (csrc/kernels/kernel_table.h: GroupSums);
# and tables for each 64 of one token (LutTables).
_CODES_BYTES = GROUP_COLUMNS + 2 * 4 + 32
_TABLE_BYTES = 768
_TILE_TOKENS = 16
_IN_PLACE = frozenset(("rms_norm", "rope", "add", "silu_mul", "gelu_mul", "relu2", "scale", "soft_cap"))


def weight_items(model: Model) -> tuple[WeightItem, ...]:
    """The model's weights in the order in which a step uses them; a tied embedding where it is the output matrix."""
    multiplied = {node.weights[0] for node in model.graph.nodes if node.op == "linear"}
    items: dict[str, WeightItem] = {}
    for node in model.graph.nodes:
        for name in node.weights:
            is_tied = node.op == "embed" and name in multiplied
            if name not in items and not is_tied:
                items[name] = _item(model.weights[name], node.op)
    return tuple(items.values())


def top_k(graph: Graph) -> int:
    """Most experts that a token uses in a layer; 0 without any."""
    return max((int(node.attributes["top_k"]) for node in graph.nodes if node.op == "moe"), default=0)


def activation_bytes(model: Model, batch_tokens: int) -> int:
    """An upper bound of what a step of so many tokens computes with, before the core has planned it.

    At each node: the values that are still needed, as float32 and as codes, and the logits of one token.
    """
    nodes = model.graph.nodes
    last_use = list(range(len(nodes)))
    codes_from: dict[int, int] = {}
    codes_until: dict[int, int] = {}
    for index, node in enumerate(nodes):
        for value in node.inputs:
            last_use[value] = index
        if node.op in ("linear", "moe"):
            codes_from.setdefault(node.inputs[0], index)
            codes_until[node.inputs[0]] = index
    change = [0] * (len(nodes) + 1)  # of the bytes that are needed, from one node to the next

    def need(num_bytes: int, first: int, last: int) -> None:
        change[first] += num_bytes
        change[last + 1] -= num_bytes

    for index, node in enumerate(nodes):
        # Written over its input, where nobody reads that any more.
        is_in_place = node.op in _IN_PLACE and last_use[node.inputs[0]] == index
        if index != model.graph.output_index:
            need(batch_tokens * 4 * _padded(node.width), min(index + is_in_place, last_use[index]), last_use[index])
        if index in codes_from:
            need(_codes_bytes(batch_tokens, node.width), codes_from[index], codes_until[index])
        if node.op == "moe":
            need(_expert_bytes(batch_tokens, node.width, node.attributes), index, index)
    most = needed = 0
    for step in change:
        needed += step
        most = max(most, needed)
    # Buffers of several sizes leave gaps in an arena; behind the last attention the rows that go on are copied.
    return most + batch_tokens * 4 * 2 * _padded(nodes[0].width) + 4 * _padded(nodes[model.graph.output_index].width)


def carried_bytes(model: Model) -> int:
    """An upper bound of what a token takes from one segment of the core's plan to the next, and its rotary tables."""
    graph = model.graph
    shared = 4 * (_padded(graph.nodes[0].width) + sum(rope.rotary_dim for rope in graph.ropes))
    return shared + max((_routed_bytes(model, node) for node in graph.nodes if node.op == "moe"), default=0)


def _routed_bytes(model: Model, node: Node) -> int:
    """Of a token that waits for its experts: their input and output, and what the router chose."""
    entries = [model.weights[name].entry for i, name in enumerate(node.weights) if i % 3 != 2]
    specs = [formats.get(name).spec for name in {entry.format for entry in entries}]
    num_codes = min(2, sum(not spec.is_float for spec in specs))  # with a scale for 32 and for 64 columns
    num_floats = 1 + (any(spec.is_float for spec in specs) or any(entry.outliers for entry in entries))
    row = _padded(node.width)
    indices = 4 * (3 * _padded(int(node.attributes["top_k"])) + int(node.attributes["top_k"]))
    return num_floats * 4 * row + num_codes * row // GROUP_COLUMNS * _CODES_BYTES + indices


def base_bytes(checkpoint: Checkpoint) -> int:
    """What the program takes before any weight: an estimate, as nothing is loaded to measure it."""
    return PROGRAM_BYTES + TOKENIZER_FACTOR * _tokenizer_bytes(checkpoint)


def budget_context(model_context: int, kv_page_bytes: int, budget_bytes: int) -> int:
    """The default context under a budget: the model's, or what an eighth of the budget holds, at least 256 tokens."""
    fitting = (int(budget_bytes * KV_SHARE) // kv_page_bytes - 1) * PAGE_TOKENS
    return min(model_context, max(MIN_CONTEXT, fitting))


def _item(source: WeightSource, op: str) -> WeightItem:
    layer = _LAYER.match(source.name)
    is_output = source.role == "output" or (source.role == "embedding" and op == "linear")
    return WeightItem(
        name=source.name,
        role="output" if is_output else source.role,
        layer=int(layer[1]) if layer else None,
        rows=source.rows,
        file_bytes=source.num_bytes,
        unit_rows=math.lcm(STRIP_ROWS, source.rows // source.heads) if source.heads else STRIP_ROWS,
        kind=_kind(source, op),
        num_segments=len(source.ranges()) + len(source.outlier_ranges()),
        resident_bytes=_resident_bytes(source),
        is_logits=is_output,
        records=_records(source),
    )


def _kind(source: WeightSource, op: str) -> Kind:
    if source.is_vector:
        return "vector"
    if source.neuron_bits and op == "linear":
        return "neurons"
    kinds: dict[str, Kind] = {"moe": "expert", "embed": "lookup"}
    return kinds.get(op, "matrix")


def _resident_bytes(source: WeightSource) -> int:
    """Bytes of the store's arena, as csrc/weights/store.cpp places them."""
    if source.is_vector:
        return _aligned([4 * STRIP_ROWS * num_strips(source.rows)])
    parts = list(formats.part_bytes(formats.get(source.entry.format).spec, source.rows, source.cols))
    if source.entry.outliers:
        parts += [4 * (num_strips(source.rows) + 1), source.entry.num_outliers * _OUTLIER_BYTES]
    return _aligned(parts)


def _records(source: WeightSource) -> Records | None:
    if not source.neuron_bits:
        return None
    codes = formats.part_bytes(formats.get(source.entry.format).spec, source.rows, source.cols)[
        len(source.entry.parts) - 1 :
    ]
    return Records(
        count=source.cols,
        record_bytes=source.record_bytes,
        beside_bytes=_resident_bytes(source) - _aligned(codes),
    )


def _aligned(parts: Iterable[int]) -> int:
    return sum(-(-num_bytes // _ARENA_ALIGNMENT) * _ARENA_ALIGNMENT for num_bytes in parts)


def _padded(width: int) -> int:
    return -(-width // GROUP_COLUMNS) * GROUP_COLUMNS


def _codes_bytes(rows: int, width: int) -> int:
    """Codes of both kinds: formats that scale 32 columns and those that scale 64 read their own."""
    groups, rows = _padded(width) // GROUP_COLUMNS, -(-rows // _TILE_TOKENS) * _TILE_TOKENS
    return 2 * groups * (rows * _CODES_BYTES + _TABLE_BYTES)


def _expert_bytes(tokens: int, width: int, attributes: Mapping[str, float]) -> int:
    """What a mixture of experts needs between its router and its output."""
    slots, size = tokens * int(attributes["top_k"]), int(attributes["intermediate_size"])
    ranges = 4 * _padded(2 * int(attributes["num_experts"]) + 2)
    tables = int(attributes["top_k"]) * _codes_bytes(0, size)
    indices = 4 * (3 * tokens * _padded(int(attributes["top_k"])) + _padded(slots))
    return 4 * slots * (2 * _padded(size) + _padded(width)) + _codes_bytes(slots, size) + ranges + indices + tables


def _tokenizer_bytes(checkpoint: Checkpoint) -> int:
    """Bytes of tokenizer.json, or of a GGUF file's tokens and merges."""
    if checkpoint.kind == "gguf":
        texts = [checkpoint.metadata.get(f"tokenizer.ggml.{name}") for name in ("tokens", "merges")]
        return sum(len(str(text)) + 8 for values in texts if isinstance(values, list) for text in values)
    path = checkpoint.path / "tokenizer.json"
    return path.stat().st_size if path.is_file() else 0
