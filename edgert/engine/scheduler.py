"""Which tokens of which sequences go into the next step: a pure decision, taken on values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceState:
    """What the scheduler sees of a sequence.

    num_tokens are known (prompt and generated), num_computed of them have keys and values. last_step is the number of
    the last step that the sequence was in (-1: none). A stalled one has unread output enough and is left alone.
    most_tokens: of a span (0: no limit).
    """

    key: int
    num_tokens: int
    num_computed: int
    last_step: int
    is_stalled: bool = False
    most_tokens: int = 0


@dataclass(frozen=True, slots=True)
class PlannedSpan:
    """`num_tokens` tokens of sequence `key`, from position `start`; is_last: after it all known tokens are computed."""

    key: int
    start: int
    num_tokens: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The spans of one step, in order."""

    spans: tuple[PlannedSpan, ...]

    @property
    def num_tokens(self) -> int:
        return sum(span.num_tokens for span in self.spans)


def plan_step(states: Sequence[SequenceState], batch_tokens: int, *, driver: int | None = None) -> StepPlan:
    """Continuous batching: decoding sequences get one token each, prompts share what is left of batch_tokens.

    `driver` is the sequence whose consumer waits: it goes first. Then those that were longest without a step, so that
    with more sequences than batch_tokens each gets its turn. A prompt leaves one token to every decoding sequence
    behind it, unless it is the first in line and nothing would be left for it.
    """
    waiting = [s for s in states if not s.is_stalled and s.num_tokens > s.num_computed]
    waiting.sort(key=lambda s: (s.key != driver, s.last_step, s.key))
    is_decode = [s.num_tokens - s.num_computed == 1 for s in waiting]
    num_decodes_behind = sum(is_decode)
    spans: list[PlannedSpan] = []
    left = batch_tokens
    for state, decodes in zip(waiting, is_decode, strict=True):
        num_decodes_behind -= decodes
        wanted = state.num_tokens - state.num_computed
        # The first in line advances in any case.
        free = left if decodes else max(left - num_decodes_behind, 0 if spans else 1)
        granted = min(wanted, free, state.most_tokens or free)
        if granted > 0:
            spans.append(PlannedSpan(state.key, state.num_computed, granted, granted == wanted))
            left -= granted
    return StepPlan(tuple(spans))
