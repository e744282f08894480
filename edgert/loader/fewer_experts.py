"""Fewer experts for each token than a mixture of experts was made for: lossy, and less to read and to compute."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edgert.errors import UsageError
from edgert.graph import Graph


def use_fewer_experts(
    path: Path, graph: Graph, *, active_experts: int | None = None, min_expert_weight: float | None = None
) -> None:
    """Changes the graph's mixtures of experts.

    active_experts: of each token's experts only so many, the likeliest. min_expert_weight: of these, those go whose
    weight is a smaller share of the weights of all of them; the likeliest stays. Where a model makes its weights sum to
    1, those that are left do.

    Raises UsageError for a model without experts, and for more of them than its tokens use.
    """
    given = {"active_experts": active_experts, "min_expert_weight": min_expert_weight}
    asked = [name for name, value in given.items() if value is not None]
    mixtures = [index for index, node in enumerate(graph.nodes) if node.op == "moe"]
    if asked and not mixtures:
        option = f"--{asked[0].replace('_', '-')}"
        raise UsageError(
            f"{path}: {asked[0]}: found a model without experts, expected a mixture of experts; leave {option} out"
        )
    most = max((int(graph.nodes[index].attributes["top_k"]) for index in mixtures), default=0)
    if active_experts is not None and active_experts > most:
        raise UsageError(
            f"{path}: active_experts: found {active_experts}, expected at most the {most} that each token of this "
            "model uses; leave --active-experts out"
        )
    for index in mixtures:
        attributes = dict(graph.nodes[index].attributes)
        if active_experts is not None:
            attributes["top_k"] = min(active_experts, attributes["top_k"])
        if min_expert_weight is not None:
            attributes["min_expert_weight"] = min_expert_weight
        graph.nodes[index] = replace(graph.nodes[index], attributes=attributes)
