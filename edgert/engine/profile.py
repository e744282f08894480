"""Where the time of a step goes: the core's clock of every step of the plan, summed by what the steps do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from edgert.quant import format as formats


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Steps of one kind, of products those with matrices of one role and shape; seconds of thread 0 in one run.

    role: the weight's name without its layer ("mlp.down_proj"), empty where the step has none. weight_bytes: what all
    these steps read of it in a run, by the published bits of its format; 0 where that is no fixed number.
    """

    kind: str
    role: str
    format: str
    rows: int
    cols: int
    num_steps: int
    weight_bytes: float
    working_s: float
    waiting_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProfile:
    """A run of the plan on average: `costs`, the dearest first, and what it takes to lay its work open."""

    num_runs: int
    starting_s: float
    costs: tuple[StepCost, ...]

    @property
    def run_s(self) -> float:
        """Seconds of a run, from its beginning to its last item."""
        return self.starting_s + sum(cost.working_s + cost.waiting_s for cost in self.costs)


def step_profile(measured: dict[str, Any]) -> StepProfile:
    """What `_core.Runtime.stop_profile` returned, summed by kind, role, format and shape."""
    num_runs = max(1, measured["num_runs"])
    sums: dict[tuple[str, str, str, int, int], list[float]] = {}
    for kind, weight, format_name, rows, cols, working_s, waiting_s in measured["steps"]:
        total = sums.setdefault((kind, _role(weight), format_name, rows, cols), [0, 0.0, 0.0])
        for i, value in enumerate((1, working_s, waiting_s)):
            total[i] += value
    costs = [
        StepCost(
            kind=kind,
            role=role,
            format=format_name,
            rows=rows,
            cols=cols,
            num_steps=int(num_steps),
            weight_bytes=num_steps * _weight_bytes(format_name, rows, cols) if kind == "linear" else 0.0,
            working_s=working_s / num_runs,
            waiting_s=waiting_s / num_runs,
        )
        for (kind, role, format_name, rows, cols), (num_steps, working_s, waiting_s) in sums.items()
    ]
    costs.sort(key=lambda cost: -(cost.working_s + cost.waiting_s))
    return StepProfile(num_runs=measured["num_runs"], starting_s=measured["starting_s"] / num_runs, costs=tuple(costs))


def _weight_bytes(format_name: str, rows: int, cols: int) -> float:
    return rows * cols * formats.get(format_name).spec.published_bits / 8


def _role(weight: str) -> str:
    return re.sub(r"^model\.|layers\.\d+\.|\.weight$", "", weight)
