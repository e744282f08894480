"""What a generation gives back: chunks while it runs, a completion at its end, and how long it took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgert.engine.streaming import KVStats, StreamingStats

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Counts and times of one request; seconds are wall-clock.

    prompt_tokens counts the whole prompt, reused_tokens those whose keys and values were at hand; the prompt's rate
    counts the others. decode_s runs from the first generated token to the last, so its rate counts one token less.
    streaming: what was read from disk meanwhile, None where all weights are in memory; requests that run side by side
    share it. kv: the same of keys and values, None where all of them stay in memory.
    """

    prompt_tokens: int
    reused_tokens: int
    prompt_s: float
    prompt_tokens_per_s: float
    generated_tokens: int
    decode_s: float
    tokens_per_s: float
    load_s: float
    seed: int
    streaming: StreamingStats | None = None
    kv: KVStats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprobs:
    """A generated token's natural log-probability, and the most likely tokens at its place, best first."""

    token: int
    logprob: float
    top_logprobs: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One generated token. `text` may be empty: part of a character, or text that may become a stop string.

    The last chunk of a generation has a finish_reason, the timings, and the text that was held back.
    """

    text: str
    token: int
    logprob: float
    top_logprobs: tuple[tuple[int, float], ...] = ()
    finish_reason: FinishReason | None = None
    timings: Timings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A whole answer. `tokens` are all that were generated, an end-of-text token that ended it included."""

    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    timings: Timings
    logprobs: tuple[TokenLogprobs, ...] | None = None


def complete(chunks: list[Chunk], *, with_logprobs: bool) -> Completion:
    """Joins the chunks of a generation that has ended (the last one has a finish_reason)."""
    last = chunks[-1]
    assert last.finish_reason is not None and last.timings is not None, "the generation has not ended"
    logprobs = tuple(
        TokenLogprobs(token=chunk.token, logprob=chunk.logprob, top_logprobs=chunk.top_logprobs) for chunk in chunks
    )
    return Completion(
        text="".join(chunk.text for chunk in chunks),
        tokens=tuple(chunk.token for chunk in chunks),
        finish_reason=last.finish_reason,
        timings=last.timings,
        logprobs=logprobs if with_logprobs else None,
    )
