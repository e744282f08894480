"""Where the time of a step goes, for `edgert bench --profile`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgert.engine.profile import StepCost, StepProfile
    from edgert.llm import LLM


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseProfile:
    """Steps of one phase, "prefill" or "decode".

    outside_s: what passes between two steps, outside the core: scheduler, sampler, detokenizer.
    """

    phase: str
    threads: int
    outside_s: float
    steps: StepProfile


def prompt_ids(llm: LLM, count: int) -> list[int]:
    """Arbitrary token ids."""
    return [(7 * i + 1) % llm.vocab_size for i in range(count)]


def profile_phases(llm: LLM, prompt_tokens: int, max_tokens: int) -> list[PhaseProfile]:
    """The steps that read a prompt, and those that write `max_tokens` tokens after it."""
    profiles = []
    stream = llm.stream(prompt_ids(llm, prompt_tokens), max_tokens=max_tokens, temperature=0, ignore_eos=True)
    for phase, num_chunks in (("prefill", 1), ("decode", max_tokens - 1)):
        llm.start_profile()
        started_s = time.perf_counter()
        for _ in range(num_chunks):
            next(stream)
        elapsed_s = time.perf_counter() - started_s
        steps = llm.stop_profile()
        outside_s = max(0.0, elapsed_s / max(1, steps.num_runs) - steps.run_s)
        profiles.append(PhaseProfile(phase=phase, threads=llm.threads, outside_s=outside_s, steps=steps))
    stream.close()
    return profiles


def profile_table(profile: PhaseProfile) -> list[str]:
    """The lines of a table of microseconds a step, the dearest first."""
    steps = profile.steps
    total_s = steps.run_s + profile.outside_s
    lines = [
        f"{profile.phase} with {profile.threads} threads: {1e6 * total_s:.0f} us a step of {steps.num_runs}",
        f"{'step':<46} {'times':>5} {'us':>9} {'waiting':>8} {'share':>6} {'GB/s':>6}",
    ]
    for cost in steps.costs:
        seconds = cost.working_s + cost.waiting_s
        rate = f"{cost.weight_bytes / seconds / 1e9:6.1f}" if cost.weight_bytes and seconds else ""
        lines.append(
            f"{_title(cost):<46} {cost.num_steps:5d} {1e6 * seconds:9.1f} {1e6 * cost.waiting_s:8.1f} "
            f"{100 * seconds / total_s:5.1f}% {rate}".rstrip()
        )
    for title, seconds in (("start of a step", steps.starting_s), ("outside the core", profile.outside_s)):
        lines.append(f"{title:<46} {'':5} {1e6 * seconds:9.1f} {'':8} {100 * seconds / total_s:5.1f}%")
    return lines


def _title(cost: StepCost) -> str:
    if cost.kind != "linear":
        return cost.kind
    return f"linear {cost.role} {cost.format} {cost.rows}x{cost.cols}"
