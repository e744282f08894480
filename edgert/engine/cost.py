"""What a token costs in memory traffic: the figure that decoding is held against."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from edgert.errors import UnsupportedModelError
from edgert.graph import Graph
from edgert.loader import Model, WeightSource


def token_bytes(model: Model) -> int:
    """Bytes of the weights that decoding one token reads, as the files hold them.

    Every matrix once, of experts only those that are chosen, of the embedding one row. Keys, values and activations
    are not counted.
    """
    shares = _shares(model.graph)
    return round(sum(source.num_bytes * shares.get(name, 1.0) for name, source in model.weights.items()))


def expert_bytes(model: Model) -> NDArray[np.int64]:
    """Bytes of each routed expert, (mixture-of-experts layers, experts); (0, 0) where there are none.

    Raises UnsupportedModelError where layers differ in their number of experts.
    """
    nodes = [node for node in model.graph.nodes if node.op == "moe"]
    if not nodes:
        return np.zeros((0, 0), np.int64)
    counts = {int(node.attributes["num_experts"]) for node in nodes}
    if len(counts) > 1:
        raise UnsupportedModelError(
            f"{model.checkpoint.path}: found layers of {sorted(counts)} experts, expected one number"
        )
    sizes = [[model.weights[name].num_bytes for name in node.weights] for node in nodes]
    parts = np.array(sizes, np.int64).reshape(len(nodes), max(counts), -1)
    return cast("NDArray[np.int64]", parts.sum(axis=2))


def active_parameters(model: Model) -> int:
    """Weights that a token is multiplied with or looked up in: all but those of experts that are not chosen."""
    inactive = 0.0
    for node in model.graph.nodes:
        if node.op == "moe":
            sizes = (_num_weights(model.weights[name]) for name in node.weights)
            inactive += sum(sizes) * (1 - node.attributes["top_k"] / node.attributes["num_experts"])
    return round(sum(_num_weights(source) for source in model.weights.values()) - inactive)


def _num_weights(source: WeightSource) -> int:
    return source.rows * max(source.cols, 1)


def _shares(graph: Graph) -> dict[str, float]:
    """Share of a weight that a token reads, where it is not all of it."""
    shares: dict[str, float] = {}
    for node in graph.nodes:
        if node.op == "moe":
            for name in node.weights:
                shares[name] = node.attributes["top_k"] / node.attributes["num_experts"]
        elif node.op == "embed":
            (table,) = node.weights
            shares[table] = 1 / graph.weights[table].rows
    # A tied embedding is also the output matrix, which is read whole.
    for node in graph.nodes:
        if node.op == "linear":
            shares.pop(node.weights[0], None)
    return shares
