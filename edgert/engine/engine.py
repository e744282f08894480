"""Runs requests: whoever waits for a token runs a step for all of them."""

from __future__ import annotations

import errno
import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgert import _core
from edgert.engine.kv_plan import PAGE_TOKENS
from edgert.engine.output import Chunk
from edgert.engine.profile import StepProfile, step_profile
from edgert.engine.prompt_cache import PromptCache
from edgert.engine.scheduler import PlannedSpan, SequenceState, StepPlan, plan_step
from edgert.engine.sequence import Generation, Scoring, Sequence
from edgert.engine.turns import Turns
from edgert.errors import DeviceError, EdgertError, OutOfMemoryError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgert._core import Runtime
    from edgert.offload.expert_trace import RoutedLayer

# An older request whose consumer reads nothing for this long gives its pages to younger ones.
STALL_PATIENCE_S = 0.1
# A step shall not take much longer, or an interrupt, a progress line and the other requests wait for it.
STEP_S = 1.0
# What a first step may hold before its rate is known, and what every later one may.
MIN_STEP_TOKENS = 64
MIN_MEASURED_TOKENS = 16
CLOSED = "the model is closed: open it again with edgert.load(...)"


class Engine:
    """Continuous batching without a thread of its own.

    A consumer that waits becomes the driver, unless there is one: it runs steps for all requests until its own output
    is there. Only the driver touches the runtime, the cache and the core's sequences. Results do not depend on who
    drives, nor on what runs beside a request.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        batch_tokens: int,
        cache_prompts: int,
        is_streamed: bool = False,
        logit_rows: int = 0,
    ) -> None:
        """batch_tokens: most tokens of a step; cache_prompts: conversations whose keys and values are kept.

        is_streamed: a step reads weights from disk, once for however many tokens it has. logit_rows: of a step, where
        a request wants the logits of all its tokens (0: no limit).
        """
        self._runtime = runtime
        self._batch_tokens = batch_tokens
        self._is_streamed = is_streamed
        self._logit_rows = logit_rows
        self._step_tokens = batch_tokens if is_streamed else min(MIN_STEP_TOKENS, batch_tokens)
        self._cache = PromptCache(runtime, cache_prompts)
        self._turns = Turns()
        self._active: dict[int, Sequence] = {}
        self._keys = itertools.count()
        self._step_keys: tuple[int, ...] = ()  # of the requests in the step that runs
        self._num_steps = 0
        self._is_closed = False

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV pages in use."""
        return 0 if self._is_closed else self._runtime.kv_bytes

    @property
    def num_active(self) -> int:
        """Requests that have not ended."""
        return len(self._active)

    def submit(self, sequence: Sequence) -> None:
        """Takes a request in; its pages are taken when its first tokens are computed."""
        sequence.key = next(self._keys)
        self._active[sequence.key] = sequence
        # Looked at afterwards: whoever closes meanwhile has seen this request.
        if self._is_closed:
            self._active.pop(sequence.key, None)
            raise UsageError(CLOSED)

    def next_chunk(self, sequence: Generation) -> Chunk:
        """The next chunk, waiting and stepping as needed. Raises what made the request fail."""
        self._drive(sequence, lambda: bool(sequence.outputs) or sequence.is_over)
        if not sequence.outputs:
            raise _reason(sequence)
        sequence.stalled_since_s = None
        return sequence.outputs.popleft()

    def wait_scores(self, sequence: Scoring) -> None:
        """Waits until all logits of the request are there. Raises what made it fail."""
        self._drive(sequence, lambda: sequence.is_over)
        if not sequence.is_finished:
            raise _reason(sequence)

    def cancel(self, sequence: Sequence) -> None:
        """Ends a request; its pages are free on return. Does nothing to one that has ended.

        A finaliser that runs inside this thread's own step cannot wait: then the pages are free after that step.
        """
        sequence.is_cancelled = True
        if sequence.key in self._active and not self._turns.is_mine:
            self._stop_unwanted_step()
            with self._turns.alone():
                self._release_ended()

    def _stop_unwanted_step(self) -> None:
        """Ends the step that runs, and its reads from disk, if nobody waits for it any more."""
        running = [self._active.get(key) for key in self._step_keys]
        if all(sequence is None or sequence.is_over for sequence in running) and not self._is_closed:
            self._runtime.stop()

    def clear_cache(self) -> None:
        """Releases the kept conversations."""
        with self._turns.alone():
            if not self._is_closed:
                self._cache.clear()

    def stream_counters(self) -> dict[str, Any]:
        """What was read from disk so far, in the core's totals; empty where nothing is streamed."""
        runtime: Runtime | None = self.__dict__.get("_runtime")  # gone once it is closed
        return {} if runtime is None else runtime.stream_counters()

    def kv_counters(self) -> dict[str, Any]:
        """What was read and written of keys and values on disk, as stream_counters."""
        runtime: Runtime | None = self.__dict__.get("_runtime")
        return {} if runtime is None else runtime.kv_counters()

    def start_profile(self) -> None:
        """Times the steps of the plan from now on."""
        with self._turns.alone():
            self._open_runtime().start_profile()

    def stop_profile(self) -> StepProfile:
        """What the steps since `start_profile` cost."""
        with self._turns.alone():
            return step_profile(self._open_runtime().stop_profile())

    def start_trace(self) -> None:
        """Keeps when steps, reads and waits begin and end from now on."""
        with self._turns.alone():
            self._open_runtime().start_trace()

    def stop_trace(self) -> dict[str, Any]:
        """What happened since `start_trace`, as edgert.engine.trace writes it."""
        with self._turns.alone():
            return self._open_runtime().stop_trace()

    def start_routing_trace(self) -> None:
        """Keeps what the routers of a mixture-of-experts model choose from now on."""
        with self._turns.alone():
            self._open_runtime().start_routing_trace()

    def stop_routing_trace(self) -> list[RoutedLayer]:
        """What the routers chose since `start_routing_trace`, layer by layer."""
        with self._turns.alone():
            return self._open_runtime().stop_routing_trace()

    def start_neuron_counts(self) -> None:
        """Counts how many tokens activate each neuron of a model with squared ReLU from now on."""
        with self._turns.alone():
            self._open_runtime().start_neuron_counts()

    def stop_neuron_counts(self) -> dict[str, tuple[int, NDArray[np.uint32]]]:
        """By matrix: tokens since `start_neuron_counts`, and how many of them activated each neuron."""
        with self._turns.alone():
            return self._open_runtime().stop_neuron_counts()

    def _open_runtime(self) -> Runtime:
        if self._is_closed:
            raise UsageError(CLOSED)
        return self._runtime

    def close(self) -> None:
        """Fails the requests that run and frees the weights, after the step that runs; a streamed one ends early."""
        if not self._is_closed and not self._turns.is_mine:
            self._runtime.stop()
        with self._turns.alone():
            if self._is_closed:
                return
            self._is_closed = True
            for sequence in list(self._active.values()):
                sequence.error = UsageError("the model was closed while this request ran")
            self._release_ended()
            # The runtime holds the weights; streams that somebody keeps hold this engine.
            del self._cache, self._runtime

    def _drive(self, sequence: Sequence, is_ready: Callable[[], bool]) -> None:
        while self._turns.take_unless(is_ready):
            try:
                self._step(sequence)
            finally:
                try:
                    self._release_ended()
                finally:
                    self._turns.give_back()

    def _release_ended(self) -> None:
        for sequence in [s for s in list(self._active.values()) if s.is_over]:
            core_id, sequence.core_id = sequence.core_id, None
            if core_id is not None:
                if sequence.keeps_prefix and sequence.is_finished and not self._is_closed:
                    self._cache.insert(core_id, sequence.tokens[: sequence.num_computed])
                else:
                    self._runtime.release(core_id)
            self._active.pop(sequence.key, None)

    def _step(self, driver: Sequence) -> None:
        """One step for every request that can advance, the driver's first."""
        running = {s.key: s for s in list(self._active.values()) if not s.is_over and self._open(s)}
        plan = self._plan(running, driver)
        if not plan.spans:
            if driver.error is None:
                time.sleep(STALL_PATIENCE_S / 10)
            return
        try:
            self._step_keys = tuple(span.key for span in plan.spans)
            self._run(plan, running)
        except _core.StoppedError:
            pass  # by whoever cancelled; the others run their step again
        except Exception as error:
            for span in plan.spans:
                running[span.key].error = _step_error(error, f"step of {plan.num_tokens} tokens")
        finally:
            self._step_keys = ()
            # After an interrupt or an error: forget the positions whose logits nobody has taken.
            for span in plan.spans:
                sequence = running[span.key]
                if sequence.core_id is not None and self._runtime.length(sequence.core_id) > sequence.num_computed:
                    self._runtime.rewind(sequence.core_id, sequence.num_computed)

    def _run(self, plan: StepPlan, running: dict[int, Sequence]) -> None:
        self._num_steps += 1
        started_s = time.perf_counter()
        wanted = [_wanted_rows(span, running[span.key]) for span in plan.spans]
        logits = self._runtime.step(
            [_core_span(span, running[span.key], rows) for span, rows in zip(plan.spans, wanted, strict=True)]
        )
        self._step_tokens = self._next_step_tokens(plan.num_tokens, time.perf_counter() - started_s)
        first = 0
        for span, rows in zip(plan.spans, wanted, strict=True):
            sequence = running[span.key]
            num_rows = {"none": 0, "last": 1, "all": span.num_tokens}[rows]
            sequence.last_step = self._num_steps
            if num_rows:
                # A request that fails here, by non-finite logits, fails alone.
                try:
                    sequence.receive(span.start, logits[first : first + num_rows])
                except Exception as error:
                    sequence.error = error
            first += num_rows
            sequence.num_computed += span.num_tokens
            sequence.stalled_since_s = time.perf_counter() if sequence.is_stalled else None

    def _next_step_tokens(self, num_tokens: int, elapsed_s: float) -> int:
        """Most tokens of the next step, from how long this one took. The results do not depend on it."""
        if self._is_streamed or num_tokens < min(MIN_MEASURED_TOKENS, self._batch_tokens) or elapsed_s <= 0:
            return self._step_tokens
        fitting = int(num_tokens / elapsed_s * STEP_S) // MIN_STEP_TOKENS * MIN_STEP_TOKENS
        return min(self._batch_tokens, max(MIN_STEP_TOKENS, fitting))

    def _open(self, sequence: Sequence) -> bool:
        """Gives the request a sequence in the core, with the longest kept prefix of its tokens; False if that fails."""
        if sequence.core_id is not None:
            return True
        try:
            found = self._cache.fork_longest(sequence.tokens) if sequence.can_reuse else None
            sequence.core_id, sequence.num_computed = found or (self._runtime.open_sequence(), 0)
        except Exception as error:
            sequence.error = _step_error(error, "opening a sequence")
            return False
        if sequence.last_step < 0:
            sequence.num_reused = sequence.num_computed
        return True

    def _plan(self, running: dict[int, Sequence], driver: Sequence) -> StepPlan:
        """The next step. Requests that get no page are passed over, so that others advance and free theirs."""
        states = [self._state(sequence) for sequence in running.values()]
        while True:
            wanted = plan_step(states, self._step_tokens, driver=driver.key)
            writable = self._fit_memory(wanted, running)
            plan = self._fit_pages(writable, running)
            if plan.spans or not wanted.spans:
                return plan
            # Not those that were left out for what now gets no page itself.
            passed_over = {span.key for span in writable.spans or wanted.spans}
            states = [state for state in states if state.key not in passed_over]

    def _state(self, sequence: Sequence) -> SequenceState:
        state = sequence.state()
        return replace(state, most_tokens=self._logit_rows) if sequence.wants_all_logits else state

    def _fit_memory(self, plan: StepPlan, running: dict[int, Sequence]) -> StepPlan:
        """The spans that write no more pages than memory holds, in the order of the plan; one may lose its last tokens.

        What is left out goes first in a later step, as it has been without one the longest.
        """
        spans: list[PlannedSpan] = []
        appends: list[tuple[int, int]] = []
        for span in plan.spans:
            core_id, num_tokens = running[span.key].core_id, span.num_tokens
            if core_id is None:
                continue
            while num_tokens > 0 and not self._runtime.can_write([*appends, (core_id, num_tokens)]):
                num_tokens = (span.start + num_tokens - 1) // PAGE_TOKENS * PAGE_TOKENS - span.start  # a page less
            if num_tokens > 0:
                is_whole = num_tokens == span.num_tokens
                spans.append(span if is_whole else replace(span, num_tokens=num_tokens, is_last=False))
                appends.append((core_id, num_tokens))
        return StepPlan(tuple(spans))

    def _fit_pages(self, plan: StepPlan, running: dict[int, Sequence]) -> StepPlan:
        """The spans that get pages, the oldest request's first.

        Kept conversations make room for everyone, younger requests for older ones: so the oldest always advances.
        """
        appends: dict[int, tuple[int, int]] = {}
        for span in sorted(plan.spans, key=lambda span: span.key):
            sequence = running[span.key]
            # A request that was preempted for an older one has no sequence in the core any more.
            while sequence.core_id is not None:
                append = (sequence.core_id, span.num_tokens)
                if self._runtime.can_reserve([*appends.values(), append]):
                    appends[span.key] = append
                    break
                if self._cache.evict_oldest():
                    continue
                victim = self._victim(sequence)
                if victim is None:
                    if not appends and not any(s.num_computed for s in running.values() if s is not sequence):
                        sequence.error = _no_page_error(sequence)
                    break
                self._preempt(victim)
        return StepPlan(tuple(span for span in plan.spans if span.key in appends))

    def _victim(self, sequence: Sequence) -> Sequence | None:
        """Who gives its pages to `sequence`: the youngest after it, or an older one whose consumer reads nothing."""
        patience_ends_s = time.perf_counter() - STALL_PATIENCE_S
        victims = [
            s
            for s in list(self._active.values())
            if s is not sequence
            and s.core_id is not None
            and s.num_computed > 0
            and (s.key > sequence.key or (s.stalled_since_s is not None and s.stalled_since_s < patience_ends_s))
        ]
        return max(victims, key=lambda s: s.key, default=None)

    def _preempt(self, victim: Sequence) -> None:
        """Takes a request's pages; it computes them again when there is room."""
        core_id, victim.core_id, victim.num_computed = victim.core_id, None, 0
        if core_id is not None:
            self._runtime.release(core_id)


def _wanted_rows(span: PlannedSpan, sequence: Sequence) -> str:
    if sequence.wants_all_logits:
        return "all"
    return "last" if span.is_last else "none"


def _core_span(span: PlannedSpan, sequence: Sequence, rows: str) -> _core.Span:
    assert sequence.core_id is not None, "only sequences that are open are planned"
    return _core.Span(sequence.core_id, sequence.tokens[span.start : span.start + span.num_tokens], rows)


def _no_page_error(sequence: Sequence) -> OutOfMemoryError:
    return OutOfMemoryError(
        f"KV cache: {sequence.num_tokens} tokens found no free page, expected room for them; open the model with a "
        "smaller context"
    )


def _step_error(error: Exception, what: str) -> EdgertError:
    if isinstance(error, MemoryError):
        return OutOfMemoryError(f"{what}: no memory is left; open the model with a smaller context")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DeviceError(
            f"keys and values on disk: {error.strerror}; free some room there, name another folder with TMPDIR, or ask "
            "for a smaller context"
        )
    return EdgertError(f"{what} failed: {error}")


def _reason(sequence: Sequence) -> Exception:
    return sequence.error or UsageError("the stream was closed: start a new one")
