"""One request: its tokens, how far they are computed, and what its consumer has not read yet."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from edgert.engine.output import Chunk, FinishReason, Timings
from edgert.engine.params import SamplingParams
from edgert.engine.sampler import RequestSampler
from edgert.engine.scheduler import SequenceState
from edgert.engine.stops import StopMatcher
from edgert.engine.streaming import Counters, StreamingStats, StreamMeter, kv_stats

if TYPE_CHECKING:
    from edgert._core import SampleResult

# A stream's consumer may be this many chunks behind before its sequence waits for it.
MAX_UNREAD_CHUNKS = 4


class TextDecoder(Protocol):
    """Turns token ids into text, whole characters only."""

    def push(self, token: int) -> str: ...
    def finish(self) -> str: ...


class Sequence:
    """The state of a request. The engine's driver changes it; its consumer only takes from `outputs`."""

    def __init__(self, prompt: NDArray[np.int32], *, room: int) -> None:
        """prompt: int32 ids (n,); room: tokens that may follow."""
        self.key = -1
        self.core_id: int | None = None
        self.num_prompt_tokens = len(prompt)
        self.num_tokens = len(prompt)
        self.num_computed = 0
        self.num_reused = 0
        self.last_step = -1
        self.outputs: deque[Chunk] = deque()
        self.error: Exception | None = None
        self.is_finished = False
        self.is_cancelled = False
        self.stalled_since_s: float | None = None
        self._tokens = np.empty(len(prompt) + room, dtype=np.int32)
        self._tokens[: len(prompt)] = prompt

    @property
    def tokens(self) -> NDArray[np.int32]:
        """All known tokens: a view, valid until the next is added."""
        return self._tokens[: self.num_tokens]

    @property
    def is_stalled(self) -> bool:
        """Whether its consumer is behind."""
        return False

    @property
    def is_over(self) -> bool:
        return self.is_finished or self.is_cancelled or self.error is not None

    @property
    def keeps_prefix(self) -> bool:
        """Whether its keys and values are worth keeping when it has finished."""
        return False

    @property
    def can_reuse(self) -> bool:
        """Whether it may start from keys and values that are kept."""
        return True

    @property
    def wants_all_logits(self) -> bool:
        """Whether every position's logits are wanted, or those behind the last known token."""
        return False

    def state(self) -> SequenceState:
        return SequenceState(
            key=self.key,
            num_tokens=self.num_tokens,
            num_computed=self.num_computed,
            last_step=self.last_step,
            is_stalled=self.is_stalled,
        )

    def append(self, token: int) -> None:
        self._tokens[self.num_tokens] = token
        self.num_tokens += 1

    def receive(self, start: int, rows: NDArray[np.float32]) -> None:
        """Takes the logits (n, vocab) of the positions from `start`; valid only during the call."""
        raise NotImplementedError


class Scoring(Sequence):
    """A request for the logits of every token of a prompt."""

    def __init__(self, prompt: NDArray[np.int32], vocab_size: int) -> None:
        super().__init__(prompt, room=0)
        self.scores = np.empty((len(prompt), vocab_size), dtype=np.float32)

    @property
    def can_reuse(self) -> bool:
        return False

    @property
    def wants_all_logits(self) -> bool:
        return True

    def receive(self, start: int, rows: NDArray[np.float32]) -> None:
        self.scores[start : start + len(rows)] = rows
        self.is_finished = start + len(rows) == self.num_prompt_tokens


class Generation(Sequence):
    """A request for tokens that continue a prompt."""

    def __init__(
        self,
        prompt: NDArray[np.int32],
        params: SamplingParams,
        *,
        isa: str,
        context: int,
        stop_tokens: frozenset[int],
        decoder: TextDecoder | None,
        load_s: float,
        meter: StreamMeter | None = None,
        kv_counters: Callable[[], Counters] = dict,
        max_unread_chunks: int | None = MAX_UNREAD_CHUNKS,
        keeps_prefix: bool = False,
    ) -> None:
        """context: most tokens of prompt and answer; max_unread_chunks None: never waits for its consumer.

        meter: of what is streamed, if anything is. kv_counters: of keys and values on disk.
        """
        self.max_new_tokens = params.token_limit(context - len(prompt))
        super().__init__(prompt, room=self.max_new_tokens)
        self._sampler = RequestSampler(params, seed=params.chosen_seed(), isa=isa)
        self._stop_tokens = frozenset() if params.ignore_eos else stop_tokens
        self._decoder = decoder
        self._matcher = StopMatcher(params.stop_strings())
        self._load_s = load_s
        self._max_unread_chunks = max_unread_chunks
        self._keeps_prefix = keeps_prefix
        self._started_s = time.perf_counter()
        self._first_token_s = 0.0
        self._kv_counters = kv_counters
        self._start_kv: Counters = kv_counters()
        self._first_token_kv: Counters = {}
        self._meter = meter
        self._start_counters: Counters = meter.counters() if meter else {}
        self._first_token_counters: Counters = {}

    @property
    def is_stalled(self) -> bool:
        return self._max_unread_chunks is not None and len(self.outputs) >= self._max_unread_chunks

    @property
    def keeps_prefix(self) -> bool:
        return self._keeps_prefix

    @property
    def num_generated(self) -> int:
        return self.num_tokens - self.num_prompt_tokens

    def receive(self, start: int, rows: NDArray[np.float32]) -> None:
        sampled = self._sampler.sample(rows[-1], self.tokens)
        if self.num_generated == 0:
            self._first_token_s = time.perf_counter()
            self._first_token_kv = self._kv_counters()
            if self._meter is not None:
                self._first_token_counters = self._meter.counters()
        self.append(sampled.token)
        chunk = self._chunk(sampled)
        self.is_finished = chunk.finish_reason is not None
        self.outputs.append(chunk)

    def _chunk(self, sampled: SampleResult) -> Chunk:
        text, reason = self._advance_text(sampled.token)
        return Chunk(
            text=text,
            token=sampled.token,
            logprob=sampled.logprob,
            top_logprobs=tuple(sampled.top),
            finish_reason=reason,
            timings=None if reason is None else self._timings(),
        )

    def _advance_text(self, token: int) -> tuple[str, FinishReason | None]:
        """The text that may go out after `token`, and why the generation ends with it, if it does."""
        if token in self._stop_tokens:
            return self._flush_text(), "stop"
        text, is_stopped = self._matcher.feed(self._decoder.push(token) if self._decoder else "")
        if is_stopped:
            return text, "stop"
        if self.num_generated < self.max_new_tokens:
            return text, None
        return text + self._flush_text(), "length"

    def _flush_text(self) -> str:
        text, is_stopped = self._matcher.feed(self._decoder.finish() if self._decoder else "")
        return text if is_stopped else text + self._matcher.flush()

    def _timings(self) -> Timings:
        now = time.perf_counter()
        prompt_s = self._first_token_s - self._started_s
        decode_s = now - self._first_token_s
        num_prefilled = self.num_prompt_tokens - self.num_reused
        return Timings(
            prompt_tokens=self.num_prompt_tokens,
            reused_tokens=self.num_reused,
            prompt_s=prompt_s,
            prompt_tokens_per_s=num_prefilled / prompt_s if prompt_s > 0 else 0.0,
            generated_tokens=self.num_generated,
            decode_s=decode_s,
            tokens_per_s=(self.num_generated - 1) / decode_s if self.num_generated > 1 and decode_s > 0 else 0.0,
            load_s=self._load_s,
            seed=self._sampler.seed,
            streaming=self._streaming_stats(),
            kv=kv_stats(self._start_kv, self._first_token_kv, self._kv_counters()),
        )

    def _streaming_stats(self) -> StreamingStats | None:
        if self._meter is None:
            return None
        return self._meter.stats(self._start_counters, self._first_token_counters, self._meter.counters())
