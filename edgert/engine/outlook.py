"""How fast a model would be with another budget or at a narrower width, from rates that were measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from edgert.device.memory import cgroup_available_bytes, machine_available_bytes, resident_bytes, total_bytes
from edgert.engine.cost import token_bytes
from edgert.engine.memory_plan import MemoryPlan, MemoryPlanner
from edgert.engine.output import Timings
from edgert.errors import OutOfMemoryError
from edgert.loader import Model
from edgert.loader.views import MIN_BITS, at_bits, stored_bits
from edgert.offload.memory_budget import auto_budget
from edgert.offload.prediction import MIN_GAIN, Candidate, Prediction, advice, predict
from edgert.offload.sizes import as_option

# Of the weights, for which other budgets have room.
SHARES = (0.25, 0.5, 0.75, 1.0)
# Nothing is computed in no time, even where the clock says so.
MAX_STALL_SHARE = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """A model at one width on one machine. compute_s: of a token whose weights all are in memory."""

    planner: MemoryPlanner
    disk_bytes_per_s: float
    compute_s: float

    def predict(self, plan: MemoryPlan) -> Prediction:
        """What this plan gives; with the context full, where keys and values lie on disk."""
        return predict(
            plan.placement,
            kv_disk_bytes=plan.kv.disk_bytes,
            disk_bytes_per_s=self.disk_bytes_per_s,
            compute_s=self.compute_s,
        )

    def tokens_per_s(self, budget_bytes: int) -> float | None:
        """None below the least budget."""
        try:
            return self.predict(self.planner.plan(budget_bytes)).tokens_per_s
        except OutOfMemoryError:
            return None

    def budgets(self) -> list[tuple[float, int]]:
        """(share of the weights, budget with room for it)."""
        return [(share, self.planner.fitting_bytes(share)) for share in SHARES]

    def narrower(self) -> Iterator[tuple[int, Outlook]]:
        """The widths below this one that the same file can be read at, the widest first."""
        model = self.planner.model
        stored = max((stored_bits(source) or 0 for source in model.weights.values()), default=0)
        for bits in range(stored - 1, MIN_BITS - 1, -1):
            view = replace(model, weights=at_bits(model.checkpoint.path, model.weights, bits))
            # Computing a token takes as long as reading its weights from memory.
            compute_s = self.compute_s * token_bytes(view) / token_bytes(model)
            yield bits, replace(self, planner=replace(self.planner, model=view), compute_s=compute_s)

    def candidates(self, budget_bytes: int, tokens_per_s: float, *, most_bytes: int | None = None) -> list[Candidate]:
        """What is worth it: the smallest and the largest budget up to most_bytes, and the widest narrower width."""
        totals = (total for _, total in self.budgets() if budget_bytes < total <= (most_bytes or total))
        larger = [Candidate(f"--ram {as_option(total)}", self.tokens_per_s(total) or 0) for total in totals]
        narrower = [
            Candidate(f"--bits {bits}", outlook.tokens_per_s(budget_bytes) or 0) for bits, outlook in self.narrower()
        ]
        larger, narrower = (
            [c for c in found if c.tokens_per_s >= MIN_GAIN * tokens_per_s] for found in (larger, narrower)
        )
        return [*larger[:1], *larger[1:][-1:], *narrower[:1]]


def streaming_advice(model: Model, memory: MemoryPlan, timings: Timings, *, threads: int, kv_format: str) -> str | None:
    """One sentence where an answer mostly waited for the disk: what else this machine could do; None elsewhere."""
    streamed_bytes = memory.placement.streamed_bytes_per_token + memory.kv.disk_bytes
    if timings.tokens_per_s == 0 or streamed_bytes == 0:
        return None
    # Weights are not waited for while keys and values are.
    stall_s = timings.streaming.decode_stall_s if timings.streaming is not None else 0.0
    stall_s += timings.kv.decode_waited_s if timings.kv is not None else 0.0
    stall_share = min(MAX_STALL_SHARE, stall_s / timings.decode_s)
    planner = MemoryPlanner(
        model=model,
        base_bytes=memory.budget.base_bytes,
        threads=threads,
        context=memory.context,
        batch_tokens=memory.round_tokens,
        kv_format=kv_format,
        kv_ram=memory.kv_ram,
        can_spill=memory.kv.disk_bytes > 0,
    )
    outlook = Outlook(
        planner=planner,
        # What the disk gave of what is planned for a token: with a limit, or a cache that hits, not its own rate.
        disk_bytes_per_s=streamed_bytes * timings.tokens_per_s,
        compute_s=(1 - stall_share) / timings.tokens_per_s,
    )
    candidates = outlook.candidates(memory.budget.total_bytes, timings.tokens_per_s, most_bytes=_most_bytes())
    return advice(stall_share, timings.tokens_per_s, candidates)


def _most_bytes() -> int:
    """What the machine could give this process, with what it has already."""
    own_bytes, cgroup_bytes = resident_bytes(), cgroup_available_bytes()
    left_in_group = None if cgroup_bytes is None else cgroup_bytes + own_bytes
    return auto_budget(total_bytes(), machine_available_bytes() + own_bytes, left_in_group)
