"""What a budget of memory is spent on: decided before the weights are read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgert.engine.kv_plan import KVSpace, kv_space, least_kv_ram, page_bytes
from edgert.engine.offload_items import KV_SHARE, activation_bytes, budget_context, carried_bytes, top_k, weight_items
from edgert.errors import OutOfMemoryError
from edgert.loader import Model
from edgert.offload import Budget, Placement, Policy, fitting_bytes, minimum_bytes, place

# Of a budget, that a round's activations may take; and the rounds that are tried.
ACTIVATION_SHARE = 1 / 32
ROUND_TOKENS = (512, 256, 128, 64, 32, 16)
# What grows after the budget is divided: the runtime's tables and threads, Python's own objects.
RESERVE_BYTES = 24 << 20
# Of a budget, that the logits of many tokens may take.
LOGITS_SHARE = 1 / 64
# Tokens of a step: so many that the weights are read once for most prompts. Of a budget, what a mixture of experts may
# carry for them from layer to layer: more would be taken from its experts.
STEP_TOKENS = 1 << 14
CARRIED_SHARE = 1 / 32

_NOTHING = Budget(total_bytes=0, base_bytes=0, activation_bytes=0, kv_bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """How a model runs under a budget.

    step_tokens go through each part of the model in rounds of round_tokens. logit_rows: that a step may give.
    """

    budget: Budget
    context: int
    round_tokens: int
    step_tokens: int
    logit_rows: int
    kv: KVSpace
    kv_ram: int | None  # as it was asked for
    placement: Placement

    @property
    def kv_bytes(self) -> int:
        """Of the budget, for keys and values."""
        return self.budget.kv_bytes

    @property
    def lent_bytes(self) -> int:
        """Of the budget, what holds weights until activations, keys and values take it."""
        is_lent = bool(self.placement.pieces) or self.placement.expert_cache_bytes > 0
        return self.budget.kv_bytes + self.budget.activation_bytes if is_lent else 0


def plan_memory(
    model: Model,
    budget_bytes: int,
    *,
    base_bytes: int,
    threads: int,
    context: int | None,
    batch_tokens: int | None,
    kv_format: str,
    kv_ram: int | None = None,
    lock_policy: Policy = "balanced",
) -> MemoryPlan:
    """Divides the budget. base_bytes: of the process now, its tokenizer included. batch_tokens: of a round at most.

    kv_ram: bytes for keys and values, the rest of them on disk. None: all, or where those of the context that was asked
    for do not fit, what a context may take by default. Raises OutOfMemoryError, which states the least budget.
    """
    planner = MemoryPlanner(
        model=model,
        base_bytes=base_bytes,
        threads=threads,
        context=context,
        batch_tokens=batch_tokens,
        kv_format=kv_format,
        kv_ram=kv_ram,
        lock_policy=lock_policy,
    )
    return planner.plan(budget_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlanner:
    """Divides budgets of any size for one model. See plan_memory."""

    model: Model
    base_bytes: int
    threads: int
    context: int | None
    batch_tokens: int | None
    kv_format: str
    kv_ram: int | None = None
    can_spill: bool = True  # keys and values of a context that was asked for, where they do not fit
    lock_policy: Policy = "balanced"

    def plan(self, budget_bytes: int) -> MemoryPlan:
        """Raises OutOfMemoryError, which states the least budget."""
        for kv in self._kv_spaces(budget_bytes):
            for round_tokens in self._rounds(budget_bytes):
                budget = self._budget(budget_bytes, round_tokens, kv)
                try:
                    placement = self._place(budget)
                except OutOfMemoryError:
                    continue  # smaller rounds may leave room enough
                return MemoryPlan(
                    budget=budget,
                    context=self._context(budget_bytes),
                    round_tokens=round_tokens,
                    step_tokens=self._step_tokens(budget_bytes, round_tokens),
                    logit_rows=self._logit_rows(budget_bytes),
                    kv=kv,
                    kv_ram=self.kv_ram,
                    placement=placement,
                )
        # What comes before the weights grows with the budget: the error tells of the least one that has room.
        least_bytes = self.minimum_bytes()
        least = self._budget(least_bytes, self._rounds(least_bytes)[-1], self._kv_spaces(least_bytes)[-1])
        self._place(replace(least, total_bytes=budget_bytes))
        raise AssertionError("the budget is below the least one, and has room")

    def minimum_bytes(self) -> int:
        """The smallest budget with which the model runs."""
        needed = minimum_bytes(weight_items(self.model), _NOTHING, threads=self.threads, top_k=top_k(self.model.graph))
        return self._bytes_for(needed, -1)

    def fitting_bytes(self, share: float = 1.0) -> int:
        """The smallest budget with room for this share of the weights; 1: nothing is read while the model runs."""
        needed = round(share * fitting_bytes(weight_items(self.model), _NOTHING))
        return self._bytes_for(needed, 0)

    def _bytes_for(self, weights_bytes: int, choice: int) -> int:
        """The smallest total that leaves so much for weights: what comes before them grows more slowly than it.

        choice: 0, the largest rounds and most keys and values in memory; -1: the smallest and fewest.
        """
        total = 0
        while (needed := self._fixed_bytes(total, choice) + weights_bytes) > total:
            total = needed
        return total

    def _fixed_bytes(self, total: int, choice: int) -> int:
        return self._budget(total, self._rounds(total)[choice], self._kv_spaces(total)[choice]).fixed_bytes

    def _place(self, budget: Budget) -> Placement:
        return place(
            weight_items(self.model),
            budget,
            threads=self.threads,
            top_k=top_k(self.model.graph),
            policy=self.lock_policy,
        )

    def _context(self, budget_bytes: int) -> int:
        if self.context is not None:
            return self.context
        return budget_context(self.model.context_length, page_bytes(self.model.graph, self.kv_format), budget_bytes)

    def _kv_spaces(self, budget_bytes: int) -> list[KVSpace]:
        """What may become of keys and values, the most in memory first; at least one.

        The default context is one whose keys and values all fit; of one that was asked for, some may lie on disk.
        """
        choices: list[int | None] = [self.kv_ram]
        if self.kv_ram is None and self.context is not None and self.can_spill:
            least_bytes = least_kv_ram(self.model.graph, self.kv_format)
            choices += [max(int(budget_bytes * KV_SHARE), least_bytes), least_bytes]
        return [kv_space(self.model.graph, self.kv_format, self._context(budget_bytes), choice) for choice in choices]

    def _rounds(self, budget_bytes: int) -> list[int]:
        """Tokens of a round, the most first, whose activations are a small part of the budget; at least one number."""
        most = min(self._context(budget_bytes), self.batch_tokens or ROUND_TOKENS[0])
        rounds = [most, *(tokens for tokens in ROUND_TOKENS if tokens < most)]
        small = [t for t in rounds if activation_bytes(self.model, t) <= budget_bytes * ACTIVATION_SHARE]
        return small or rounds[-1:]

    def _step_tokens(self, budget_bytes: int, round_tokens: int) -> int:
        most = min(self._context(budget_bytes), max(STEP_TOKENS, round_tokens))
        if top_k(self.model.graph) == 0:
            return most
        return max(round_tokens, min(most, int(budget_bytes * CARRIED_SHARE) // carried_bytes(self.model)))

    def _logit_rows(self, budget_bytes: int) -> int:
        return max(1, int(budget_bytes * LOGITS_SHARE) // self._logits_bytes())

    def _logits_bytes(self) -> int:
        return 4 * self.model.graph.nodes[self.model.graph.output_index].width

    def _budget(self, budget_bytes: int, round_tokens: int, kv: KVSpace) -> Budget:
        carried = self._step_tokens(budget_bytes, round_tokens) * carried_bytes(self.model)
        logits_bytes = self._logit_rows(budget_bytes) * self._logits_bytes()
        needed_bytes = activation_bytes(self.model, round_tokens) + carried + logits_bytes
        used_bytes = activation_bytes(self.model, 1) + page_bytes(self.model.graph, self.kv_format)
        return Budget(
            total_bytes=budget_bytes,
            base_bytes=self.base_bytes,
            activation_bytes=needed_bytes,
            kv_bytes=kv.memory_bytes,
            idle_bytes=max(0, needed_bytes + kv.memory_bytes - used_bytes),
            kv_ring_bytes=kv.ring_bytes,
            reserve_bytes=RESERVE_BYTES,
        )
