"""Several requests at once: pages, cancelling, threads, little memory."""

import gc
import itertools
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import edgert
from edgert.engine.params import SamplingParams
from edgert.engine.stream import ChunkStream
from edgert.errors import EdgertError, OutOfMemoryError, UsageError
from edgert.llm import LLM

IDS = [2, 3, 5, 7, 11, 13]


def tokens_of(llm: LLM, ids: list[int], count: int, seed: int) -> list[int]:
    return [chunk.token for chunk in llm.stream(ids, max_tokens=count, seed=seed, ignore_eos=True)]


def test_closing_a_stream_frees_its_pages(tiny: LLM) -> None:
    stream = tiny.stream(IDS, max_tokens=100, ignore_eos=True)
    next(stream)
    assert tiny.kv_bytes > 0
    stream.close()
    assert tiny.kv_bytes == 0
    assert list(stream) == []
    stream.close()


def test_leaving_a_loop_frees_the_pages(tiny: LLM) -> None:
    for _ in tiny.stream(IDS, max_tokens=100, ignore_eos=True):
        break
    gc.collect()
    assert tiny.kv_bytes == 0


def test_a_stream_that_was_never_read_leaves_nothing(tiny: LLM) -> None:
    tiny.stream(IDS, max_tokens=100)
    gc.collect()
    assert len(tokens_of(tiny, IDS, 10, 1)) == 10
    assert tiny.kv_bytes == 0


def test_a_stream_in_a_cycle_is_freed_by_the_collector(tiny: LLM) -> None:
    class Holder:
        def __init__(self) -> None:
            self.stream = tiny.stream(IDS, max_tokens=100, ignore_eos=True)
            self.myself = self
            next(self.stream)

    Holder()
    gc.collect()
    assert tiny.kv_bytes == 0


def test_a_finished_stream_has_freed_its_pages(tiny: LLM) -> None:
    stream = tiny.stream(IDS, max_tokens=3, ignore_eos=True)
    list(stream)
    assert tiny.kv_bytes == 0


def test_streams_of_one_thread_go_on_side_by_side(tiny: LLM) -> None:
    expected = [tokens_of(tiny, IDS[: 2 + i], 12, i) for i in range(4)]
    streams = [tiny.stream(IDS[: 2 + i], max_tokens=12, seed=i, ignore_eos=True) for i in range(4)]
    got: list[list[int]] = [[] for _ in streams]
    for _ in range(12):
        for stream, tokens in zip(streams, got, strict=True):
            tokens.append(next(stream).token)
    assert got == expected
    assert tiny.kv_bytes == 0


def test_a_consumer_that_is_behind_does_not_hold_up_the_others(tiny: LLM) -> None:
    expected = tokens_of(tiny, IDS, 40, 8)
    slow = tiny.stream(IDS, max_tokens=40, seed=8, ignore_eos=True)
    first = next(slow).token
    assert tokens_of(tiny, IDS[:3], 40, 9) == tokens_of(tiny, IDS[:3], 40, 9)
    assert slow.num_computed_tokens < len(IDS) + 10, "it waits for its consumer"
    assert [first, *(chunk.token for chunk in slow)] == expected


def test_closing_the_model_ends_its_streams(tiny: LLM) -> None:
    stream = tiny.stream(IDS, max_tokens=100, ignore_eos=True)
    next(stream)
    tiny.close()
    with pytest.raises(UsageError, match="closed while this request ran"):
        list(stream)
    with pytest.raises(UsageError, match="the model is closed"):
        tiny.generate(IDS)
    tiny.close()


def run_threads(works: list[Callable[[], None]]) -> list[BaseException]:
    """Runs all at once; what they raised. Fails after a while: then someone waits for ever."""
    raised: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    return raised


def test_four_threads_with_cancelled_streams(tiny: LLM) -> None:
    expected = [tokens_of(tiny, IDS[: 2 + i], 20, i) for i in range(4)]
    got: list[list[list[int]]] = [[] for _ in range(4)]

    def work(i: int) -> None:
        for round_number in range(6):
            cancelled = tiny.stream(IDS[i:], max_tokens=50, seed=99, ignore_eos=True)
            for _, _ in zip(range(round_number), cancelled, strict=False):
                pass
            if round_number % 2:
                cancelled.close()
            else:
                del cancelled
            got[i].append(tokens_of(tiny, IDS[: 2 + i], 20, i))

    assert run_threads([lambda i=i: work(i) for i in range(4)]) == []  # type: ignore[misc]
    assert got == [[tokens] * 6 for tokens in expected]
    assert tiny.kv_bytes == 0


def test_threads_of_every_kind_of_call(tiny: LLM) -> None:
    logits = tiny.logits(IDS)
    alone = tiny.generate([IDS, IDS[:2]], max_tokens=15, seed=3, ignore_eos=True)
    bad: list[str] = []

    def score() -> None:
        for _ in range(10):
            if not (tiny.logits(IDS) == logits).all():
                bad.append("logits")

    def batch() -> None:
        for _ in range(5):
            answers = tiny.generate([IDS, IDS[:2]], max_tokens=15, seed=3, ignore_eos=True)
            if [a.tokens for a in answers] != [a.tokens for a in alone]:
                bad.append("batch")

    assert run_threads([score, batch, score, batch]) == []
    assert bad == []
    assert tiny.kv_bytes == 0


def test_closing_while_threads_run(tiny: LLM) -> None:
    started = threading.Barrier(4)

    def work() -> None:
        started.wait(30)
        while True:
            tokens_of(tiny, IDS, 30, 1)

    def close() -> None:
        started.wait(30)
        tiny.close()

    raised = run_threads([work, work, work, close])
    assert len(raised) == 3
    assert all(isinstance(error, UsageError) for error in raised)


def test_requests_that_do_not_fit_together_take_turns(tiny: LLM, load_with_pages: Callable[[int], LLM]) -> None:
    prompts = [[(7 * i + k) % 40 + 2 for i in range(100)] for k in range(4)]
    expected = [list(a.tokens) for a in tiny.generate(prompts, max_tokens=80, seed=1, ignore_eos=True)]
    with load_with_pages(5) as llm:
        assert llm.context == 4 * 64
        answers = llm.generate(prompts, max_tokens=80, seed=1, ignore_eos=True)
        assert [list(a.tokens) for a in answers] == expected
        got: list[list[int]] = [[] for _ in prompts]

        def work(i: int) -> None:
            got[i] = tokens_of(llm, prompts[i], 80, 1)

        assert run_threads([lambda i=i: work(i) for i in range(4)]) == []  # type: ignore[misc]
        assert got == expected
        assert llm.kv_bytes == 0


@pytest.mark.parametrize("seconds", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_many_threads_in_little_memory(tiny: LLM, load_with_pages: Callable[[int], LLM], seconds: float) -> None:
    prompts = [[(7 * i + 3 * k) % 40 + 2 for i in range(n)] for k, n in enumerate([3, 20, 64, 65, 120, 180])]
    expected = [tokens_of(tiny, prompt, 30, 5) for prompt in prompts]
    scores = [tiny.logits(prompt) for prompt in prompts]
    wrong: list[int] = []
    ends = time.monotonic() + seconds

    def work(llm: LLM, thread: int) -> None:
        rng = random.Random(thread)
        while time.monotonic() < ends:
            k = rng.randrange(len(prompts))
            kind = rng.choice(("read", "cancel", "idle", "batch", "score"))
            if kind == "cancel":
                stream = llm.stream(prompts[k], max_tokens=60, seed=k, ignore_eos=True)
                list(itertools.islice(stream, rng.randrange(6)))
                del stream
            elif kind == "idle":
                idle = llm.stream(prompts[k], max_tokens=30, seed=5, ignore_eos=True)
                first = next(idle).token
                wrong.extend([k] * (tokens_of(llm, prompts[0], 30, 5) != expected[0]))
                wrong.extend([k] * ([first, *(chunk.token for chunk in idle)] != expected[k]))
            elif kind == "batch":
                answers = llm.generate([prompts[k], prompts[k - 1]], max_tokens=30, seed=5, ignore_eos=True)
                wrong.extend([k] * ([list(a.tokens) for a in answers] != [expected[k], expected[k - 1]]))
            elif kind == "score":
                wrong.extend([k] * (not (llm.logits(prompts[k]) == scores[k]).all()))
            else:
                wrong.extend([k] * (tokens_of(llm, prompts[k], 30, 5) != expected[k]))

    with load_with_pages(5) as llm:
        assert run_threads([lambda i=i: work(llm, i) for i in range(6)]) == []  # type: ignore[misc]
        assert wrong == []
        assert llm.kv_bytes == 0


def test_a_stream_that_nobody_reads_gives_up_its_pages(tiny: LLM, load_with_pages: Callable[[int], LLM]) -> None:
    long = [(3 * i) % 40 + 2 for i in range(200)]
    expected = tokens_of(tiny, long, 20, 2)
    with load_with_pages(5) as llm:
        idle = llm.stream(long, max_tokens=20, seed=2, ignore_eos=True)
        first = next(idle).token
        assert tokens_of(llm, long[1:], 20, 3) == tokens_of(tiny, long[1:], 20, 3)
        assert [first, *(chunk.token for chunk in idle)] == expected


def test_kept_conversations_make_room(load_with_pages: Callable[[int], LLM]) -> None:
    with load_with_pages(5) as llm:
        tokens = np.array([(5 * i) % 40 + 2 for i in range(150)], dtype=np.int32)
        params = SamplingParams(max_tokens=2, ignore_eos=True)
        conversation = llm._generation(tokens, params, is_chat=False, max_unread_chunks=None)
        conversation._keeps_prefix = True
        assert len(list(ChunkStream(llm._engine, conversation))) == 2
        kept_bytes = llm.kv_bytes
        assert kept_bytes > 0
        again = llm.generate([*tokens.tolist(), 9], max_tokens=1)
        assert again.timings.reused_tokens == 150
        assert llm.kv_bytes == kept_bytes
        assert len(tokens_of(llm, [2] * 200, 20, 1)) == 20
        assert llm.kv_bytes == 0, "it was dropped for a request that needed its pages"


def test_a_stream_that_is_collected_inside_a_step_waits_for_nobody(tiny: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny._engine
    runtime = engine._runtime

    class Collecting:
        def __getattr__(self, name: str) -> object:
            return getattr(runtime, name)

        def step(self, spans: object) -> object:
            gc.collect()
            return runtime.step(spans)

    class Holder:
        def __init__(self) -> None:
            self.stream = tiny.stream(IDS, max_tokens=100, ignore_eos=True)
            self.myself = self
            next(self.stream)

    Holder()
    monkeypatch.setattr(engine, "_runtime", Collecting())
    assert len(tokens_of(tiny, IDS[:2], 5, 1)) == 5
    monkeypatch.setattr(engine, "_runtime", runtime)
    assert tiny.kv_bytes == 0


def test_closing_gives_the_memory_back_while_streams_are_kept(tiny_folder: Path) -> None:
    llm = edgert.load(tiny_folder, threads=1)
    stream = llm.stream(IDS, max_tokens=100)
    next(stream)
    llm.close()
    assert not hasattr(llm._engine, "_runtime")
    assert llm.kv_bytes == 0
    llm.clear_cache()
    stream.close()


def test_a_slow_machine_gets_short_steps(tiny: LLM) -> None:
    engine = tiny._engine
    assert engine._step_tokens == 64
    assert engine._next_step_tokens(64, 0.01) == 512
    assert engine._next_step_tokens(64, 0.32) == 192
    assert engine._next_step_tokens(512, 60.0) == 64
    assert engine._next_step_tokens(1, 60.0) == 64


def test_an_error_of_the_core_ends_the_requests_of_its_step(tiny: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny._engine

    class Failing:
        def __init__(self, error: Exception) -> None:
            self.error = error

        def __getattr__(self, name: str) -> object:
            return getattr(runtime, name)

        def step(self, spans: object) -> object:
            raise self.error

    runtime = engine._runtime
    monkeypatch.setattr(engine, "_runtime", Failing(RuntimeError("boom")))
    with pytest.raises(EdgertError, match="step of 6 tokens failed: boom"):
        tiny.generate(IDS)
    monkeypatch.setattr(engine, "_runtime", Failing(MemoryError()))
    with pytest.raises(OutOfMemoryError, match="no memory is left"):
        tiny.generate(IDS)
    monkeypatch.setattr(engine, "_runtime", runtime)
    assert len(tiny.generate(IDS, max_tokens=3, ignore_eos=True).tokens) == 3
    assert tiny.kv_bytes == 0


def test_an_interrupt_in_the_middle_of_a_step_changes_no_token(tiny: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = tokens_of(tiny, IDS, 12, 6)
    other = tiny.stream(IDS, max_tokens=12, seed=6, ignore_eos=True)
    tokens = [next(other).token]
    engine = tiny._engine
    runtime = engine._runtime

    class Interrupted:
        def __getattr__(self, name: str) -> object:
            return getattr(runtime, name)

        def step(self, spans: object) -> object:
            runtime.step(spans)
            raise KeyboardInterrupt

    monkeypatch.setattr(engine, "_runtime", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        tokens_of(tiny, IDS[:2], 12, 7)
    monkeypatch.setattr(engine, "_runtime", runtime)
    assert tokens + [chunk.token for chunk in other] == expected
    assert tiny.kv_bytes == 0
