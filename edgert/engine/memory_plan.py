"""What a budget of memory is spent on: decided before the weights are read."""

from __future__ import annotations

from dataclasses import dataclass

from edgert.engine.kv_plan import page_bytes
from edgert.engine.offload_items import activation_bytes, budget_context, kv_bytes, top_k, weight_items
from edgert.loader import Model
from edgert.offload import Budget, Placement, Policy, place

# Of a budget, that a round's activations may take; and the rounds that are tried.
ACTIVATION_SHARE = 1 / 32
ROUND_TOKENS = (512, 256, 128, 64, 32, 16)
# What grows after the budget is divided: the runtime's tables and threads, Python's own objects.
RESERVE_BYTES = 24 << 20
RESERVE_SHARE = 0.01
# Of a budget, that the logits of many tokens may take.
LOGITS_SHARE = 1 / 64
# Tokens of a step: so many that the weights are read once for most prompts.
STEP_TOKENS = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """How a model runs in `budget_bytes`.

    step_tokens go through each part of the model in rounds of round_tokens. logit_rows: that a step may give.
    """

    budget_bytes: int
    context: int
    kv_bytes: int
    round_tokens: int
    step_tokens: int
    logit_rows: int
    activation_bytes: int
    base_bytes: int
    placement: Placement


def plan_memory(
    model: Model,
    budget_bytes: int,
    *,
    base_bytes: int,
    threads: int,
    context: int | None,
    batch_tokens: int | None,
    kv_format: str,
    lock_policy: Policy = "balanced",
) -> MemoryPlan:
    """Divides the budget. base_bytes: of the process now, its tokenizer included. batch_tokens: of a round at most.

    Raises OutOfMemoryError, which states the least budget.
    """
    page = page_bytes(model.graph, kv_format)
    if context is None:
        context = budget_context(model.context_length, page, budget_bytes)
    most = min(context, batch_tokens or ROUND_TOKENS[0])
    rounds = [tokens for tokens in ROUND_TOKENS if tokens < most]
    round_tokens = next(
        (t for t in (most, *rounds) if activation_bytes(model, t) <= budget_bytes * ACTIVATION_SHARE),
        min(most, ROUND_TOKENS[-1]),
    )
    step_tokens = min(context, max(STEP_TOKENS, round_tokens))
    # What one segment of the plan hands on to the next, and the rotary tables.
    carried_bytes = step_tokens * 4 * (model.graph.nodes[0].width + sum(rope.rotary_dim for rope in model.graph.ropes))
    logits_bytes = 4 * model.graph.nodes[model.graph.output_index].width
    logit_rows = max(1, int(budget_bytes * LOGITS_SHARE) // logits_bytes)
    activations = activation_bytes(model, round_tokens) + carried_bytes + logit_rows * logits_bytes
    kv = kv_bytes(context, page)
    placement = place(
        weight_items(model),
        Budget(
            total_bytes=budget_bytes,
            base_bytes=base_bytes,
            activation_bytes=activations,
            kv_bytes=kv,
            reserve_bytes=RESERVE_BYTES + int(budget_bytes * RESERVE_SHARE),
        ),
        threads=threads,
        top_k=top_k(model.graph),
        policy=lock_policy,
    )
    return MemoryPlan(
        budget_bytes=budget_bytes,
        context=context,
        kv_bytes=kv,
        round_tokens=round_tokens,
        step_tokens=step_tokens,
        logit_rows=logit_rows,
        activation_bytes=activations,
        base_bytes=base_bytes,
        placement=placement,
    )
