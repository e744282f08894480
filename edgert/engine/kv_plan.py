"""How long a context may be, and how much memory its keys and values may take: decided before the runtime is made."""

from __future__ import annotations

from dataclasses import dataclass

from edgert import _core
from edgert.errors import OutOfMemoryError
from edgert.graph import Graph

PAGE_TOKENS = 64
KV_FORMATS = tuple(_core.kv_format_names())
# What the KV cache leaves of the free memory to everything else.
MEMORY_SHARE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class KVPlan:
    """`context` tokens a sequence may have; `budget_bytes` that the pages of all sequences may take."""

    context: int
    budget_bytes: int


def page_bytes(graph: Graph, kv_format: str) -> int:
    """Bytes of a page of 64 positions over all layers: keys and values of each KV head."""
    layers = [n.attributes for n in graph.nodes if n.op == "attention"]
    return max(1, sum(int(a["num_kv_heads"]) * _core.kv_page_bytes(kv_format, int(a["head_dim"])) for a in layers))


def plan_kv(*, model_context: int, asked_context: int | None, page_bytes: int, available_bytes: int) -> KVPlan:
    """The context: as asked, else the smaller of the model's and what fits the memory that is free.

    Pages are allocated as they are used; the budget only bounds them. Raises OutOfMemoryError where it does not fit.
    """
    num_pages = int(available_bytes * MEMORY_SHARE) // page_bytes
    # One page stays for the copy that a shared last page needs before it is written.
    fitting = (num_pages - 1) * PAGE_TOKENS
    context = max(1, min(model_context, fitting)) if asked_context is None else asked_context
    if fitting < context:
        needed = (-(-context // PAGE_TOKENS) + 1) * page_bytes
        raise OutOfMemoryError(
            f"context of {context} tokens: found {_mb(available_bytes)} MB free, expected {_mb(needed)} MB for "
            "its keys and values; ask for a smaller context, or free memory"
        )
    return KVPlan(context=context, budget_bytes=num_pages * page_bytes)


def _mb(num_bytes: int) -> int:
    return round(num_bytes / 1e6)
