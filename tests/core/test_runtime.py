"""The core's step: spans, sequences, masks and pages, against float64 numpy and against itself bit for bit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from core.tiny_model import VOCAB, make_model, open_runtime, reference_logits
from numpy.typing import NDArray

from edgert import _core

Floats = NDArray[np.float32]


@pytest.fixture
def rng() -> Iterator[np.random.Generator]:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    yield np.random.default_rng(seed)


def draw(rng: np.random.Generator, n: int) -> list[int]:
    return [int(t) for t in rng.integers(0, VOCAB, n)]


def append(runtime: _core.Runtime, sequence: int, tokens: list[int], step: int = 64) -> Floats:
    """Logits of all the tokens, appended in spans of `step`."""
    rows = []
    for i in range(0, len(tokens), step):
        span = _core.Span(sequence, np.array(tokens[i : i + step], np.int32), "all")
        rows.append(np.array(runtime.step([span])))
    return np.concatenate(rows)


def close(got: Floats, expected: NDArray[np.float64]) -> bool:
    return float(np.abs(got - expected).max()) <= 1e-4 * float(np.abs(expected).max())


@pytest.mark.parametrize(
    ("window", "sinks", "soft_cap"), [(0, 0, 0.0), (20, 0, 0.0), (70, 3, 0.0), (1, 1, 0.0), (0, 0, 4.0), (65, 64, 2.0)]
)
def test_logits_equal_numpy(rng: np.random.Generator, tmp_path: Path, window: int, sinks: int, soft_cap: float) -> None:
    model = make_model(rng, window=window, sinks=sinks, soft_cap=soft_cap)
    runtime = open_runtime(model, tmp_path)
    tokens = draw(rng, 150)
    assert close(append(runtime, runtime.open_sequence(), tokens), reference_logits(model, tokens))


@pytest.mark.parametrize("kv_format", _core.kv_format_names())
def test_cuts_of_the_prompt_give_the_same_bits(rng: np.random.Generator, tmp_path: Path, kv_format: str) -> None:
    runtime = open_runtime(make_model(rng, window=90, sinks=2), tmp_path, kv_format=kv_format)
    tokens = draw(rng, 140)
    whole = append(runtime, runtime.open_sequence(), tokens)
    for step in (1, 2, 7, 16, 63):
        assert (append(runtime, runtime.open_sequence(), tokens, step) == whole).all(), step


def test_threads_and_isas_give_the_same_bits(rng: np.random.Generator, tmp_path: Path) -> None:
    model, tokens = make_model(rng), draw(rng, 100)
    results = []
    for isa, is_built, is_supported in _core.isa_levels():
        for threads in (1, 2, 5, 11):
            if is_built and is_supported:
                runtime = open_runtime(model, tmp_path, threads=threads, isa=isa)
                results.append(append(runtime, runtime.open_sequence(), tokens, 33))
    assert len(results) >= 4, "one level, four thread counts"
    assert all((r == results[0]).all() for r in results)


@pytest.mark.parametrize("kv_format", ["f16", "q8_0"])
def test_a_long_context_is_divided_between_threads_with_the_same_bits(
    rng: np.random.Generator, tmp_path: Path, kv_format: str
) -> None:
    """2 KV heads for 8 threads: their pages are divided, for one sequence and for two."""
    model, tokens = make_model(rng, window=0 if kv_format == "f16" else 3000), draw(rng, 16_500)
    results = []
    for threads in (1, 8):
        runtime = open_runtime(
            model, tmp_path, kv_format=kv_format, threads=threads, batch_tokens=512, kv_pages=520, context=17_000
        )
        sequence = runtime.open_sequence()
        for i in range(0, len(tokens) - 4, 512):
            runtime.step([_core.Span(sequence, np.array(tokens[i : min(i + 512, len(tokens) - 4)], np.int32), "none")])
        other = runtime.fork(sequence)
        rows = [append(runtime, sequence, tokens[-4:-2], 1), append(runtime, sequence, tokens[-2:], 2)]
        last = [_core.Span(s, np.array(tokens[:1], np.int32), "last") for s in (sequence, other)]
        results.append(np.concatenate([*rows, runtime.step(last)]))
    assert all((r == results[0]).all() for r in results)


def test_neighbours_in_the_batch_change_nothing(rng: np.random.Generator, tmp_path: Path) -> None:
    runtime = open_runtime(make_model(rng), tmp_path)
    prompts = [draw(rng, n) for n in (5, 17, 30, 1)]
    alone = [append(runtime, runtime.open_sequence(), p)[-1] for p in prompts]
    spans = [_core.Span(runtime.open_sequence(), np.array(p, np.int32), "last") for p in prompts]
    assert (runtime.step(spans) == np.array(alone)).all()


def test_only_the_rows_asked_for_come_back(rng: np.random.Generator, tmp_path: Path) -> None:
    runtime = open_runtime(make_model(rng), tmp_path)
    tokens = draw(rng, 12)
    every = append(runtime, runtime.open_sequence(), tokens)
    a, b, c = (runtime.open_sequence() for _ in range(3))
    ids = np.array(tokens, np.int32)
    rows = runtime.step([_core.Span(a, ids, "none"), _core.Span(b, ids[:3], "last"), _core.Span(c, ids[:4], "all")])
    assert (rows == np.concatenate([every[2:3], every[:4]])).all()
    assert (append(runtime, a, [7]) == append(runtime, open_after(runtime, tokens), [7])).all()


def open_after(runtime: _core.Runtime, tokens: list[int]) -> int:
    sequence = runtime.open_sequence()
    append(runtime, sequence, tokens)
    return sequence


@pytest.mark.parametrize("length", [1, 63, 64, 65, 100, 128])
def test_fork_copies_on_write(rng: np.random.Generator, tmp_path: Path, length: int) -> None:
    runtime = open_runtime(make_model(rng), tmp_path)
    shared, left, right = draw(rng, length), draw(rng, 70), draw(rng, 9)
    parent = open_after(runtime, shared)
    before = runtime.kv_bytes
    child = runtime.fork(parent)
    assert runtime.kv_bytes == before
    got_left, got_right = append(runtime, parent, left), append(runtime, child, right)
    assert (got_left == append(runtime, runtime.open_sequence(), shared + left)[length:]).all()
    assert (got_right == append(runtime, runtime.open_sequence(), shared + right)[length:]).all()


def test_rewind_forgets_and_frees(rng: np.random.Generator, tmp_path: Path) -> None:
    runtime = open_runtime(make_model(rng), tmp_path)
    tokens, other = draw(rng, 200), draw(rng, 40)
    sequence = open_after(runtime, tokens)
    page = runtime.kv_page_bytes
    assert runtime.kv_bytes == 4 * page
    for keep in (130, 128, 70, 1):
        runtime.rewind(sequence, keep)
        assert runtime.length(sequence) == keep
        assert runtime.kv_bytes == -(-keep // 64) * page
        fresh = runtime.open_sequence()
        expected = append(runtime, fresh, tokens[:keep] + other)[keep:]
        runtime.release(fresh)
        assert (append(runtime, sequence, other) == expected).all()
        runtime.rewind(sequence, keep)
    runtime.release(sequence)
    assert runtime.kv_bytes == 0


def test_rewind_of_a_fork_leaves_the_other(rng: np.random.Generator, tmp_path: Path) -> None:
    runtime = open_runtime(make_model(rng), tmp_path)
    tokens, tail = draw(rng, 100), draw(rng, 30)
    parent = open_after(runtime, tokens)
    child = runtime.fork(parent)
    runtime.rewind(child, 10)
    append(runtime, child, tail)
    fresh = append(runtime, runtime.open_sequence(), tokens + tail)
    assert (append(runtime, parent, tail) == fresh[100:]).all()


def test_tree_mask_equals_the_chains(rng: np.random.Generator, tmp_path: Path) -> None:
    """Two continuations of one prefix in one span: each node sees its ancestors only."""
    model = make_model(rng)
    runtime = open_runtime(model, tmp_path)
    prefix, root, left, right = draw(rng, 70), *draw(rng, 3)
    sequence = open_after(runtime, prefix)
    mask = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1]], np.uint8)
    span = _core.Span(
        sequence,
        np.array([root, left, right], np.int32),
        "all",
        positions=np.array([70, 71, 71], np.int32),
        tree_mask=mask.reshape(-1),
    )
    got = np.array(runtime.step([span]))
    whole = np.tril(np.ones((73, 73), bool))
    whole[70:, 70:] = mask.astype(bool)
    expected = reference_logits(model, [*prefix, root, left, right], [*range(72), 71], whole)
    assert close(got, expected[70:])
    chain = append(runtime, runtime.open_sequence(), [*prefix, root, left])
    assert (got[:2] == chain[70:]).all()


def test_segments_hide_positions(rng: np.random.Generator, tmp_path: Path) -> None:
    model = make_model(rng)
    runtime = open_runtime(model, tmp_path)
    prefix, token = draw(rng, 150), draw(rng, 1)
    sequence = open_after(runtime, prefix)
    span = _core.Span(sequence, np.array(token, np.int32), "all", segments=[(0, 5), (60, 70), (149, 150)])
    got = np.array(runtime.step([span]))
    mask = np.tril(np.ones((151, 151), bool))
    mask[150, 5:60] = mask[150, 70:149] = False
    assert close(got, reference_logits(model, prefix + token, None, mask)[150:])


def test_a_refused_step_changes_nothing(rng: np.random.Generator, tmp_path: Path) -> None:
    runtime = open_runtime(make_model(rng), tmp_path, kv_pages=2, context=120, batch_tokens=128)
    tokens, tail = draw(rng, 100), draw(rng, 5)
    sequence = runtime.open_sequence()
    expected = append(runtime, sequence, tokens + tail, 128)[100:]
    runtime.rewind(sequence, 100)
    other = runtime.open_sequence()
    ids = np.array(tokens, np.int32)
    with pytest.raises(_core.CapacityError, match="KV cache: found 0 free pages, expected 1"):
        runtime.step([_core.Span(other, ids[:1], "last")])
    with pytest.raises(_core.CapacityError, match="context: found 121 tokens, expected at most 120"):
        runtime.step([_core.Span(sequence, ids[:21], "last")])
    for bad in ([-1], [VOCAB], [0, VOCAB]):
        with pytest.raises(_core.CoreError, match="token id"):
            runtime.step([_core.Span(sequence, np.array(bad, np.int32), "last")])
    with pytest.raises(_core.CoreError, match="twice"):
        runtime.step([_core.Span(sequence, ids[:1], "last"), _core.Span(sequence, ids[:1], "last")])
    with pytest.raises(_core.CoreError, match="expected an open one"):
        runtime.step([_core.Span(99, ids[:1], "last")])
    with pytest.raises(_core.CoreError, match="more tokens than a step takes"):
        runtime.step([_core.Span(other, np.zeros(129, np.int32), "last")])
    assert (runtime.length(sequence), runtime.length(other)) == (100, 0)
    assert (append(runtime, sequence, tail) == expected).all()


def test_logits_are_capped_where_they_lie(rng: np.random.Generator, tmp_path: Path) -> None:
    """A soft cap and a scale behind the head change the logits in place: no second buffer of their size."""
    model, tokens = make_model(rng), draw(rng, 70)
    plain = open_runtime(model, tmp_path, batch_tokens=64)
    expected = append(plain, plain.open_sequence(), tokens).astype(np.float64)
    capped = open_runtime(replace(model, logit_cap=3.0, logit_scale=0.5), tmp_path, batch_tokens=64)
    found = append(capped, capped.open_sequence(), tokens)
    np.testing.assert_allclose(found, 3.0 * np.tanh(0.5 * expected / 3.0), rtol=1e-6, atol=1e-6)
    assert capped.activation_bytes == plain.activation_bytes
