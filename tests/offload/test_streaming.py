"""Streamed weights give the bits of weights that are in memory, whatever the plan, the reader and the model."""

from __future__ import annotations

import numpy as np
import pytest
from seeds import draw_rng

from edgert import _core

from .streamed_models import DENSE, VIEWS, Models
from .streamed_runs import (
    METHODS,
    Plan,
    Reference,
    check_method,
    core_span,
    limits,
    make_reference,
    open_runtime,
    placed,
    play,
    random_plan,
)

NAMES = [(name, None) for name in DENSE] + list(VIEWS.items())


@pytest.fixture(scope="module")
def references(models: Models) -> dict[tuple[str, int | None], Reference]:
    return {(name, bits): make_reference(models.dense(name, bits)) for name, bits in NAMES}


def reads(store: _core.WeightStore) -> int:
    return int(store.stream_counters()["num_bytes"])


@pytest.mark.parametrize(("name", "bits"), NAMES)
def test_every_budget_gives_the_same_bits(models, references, name, bits) -> None:
    rng = draw_rng()
    model, reference = models.dense(name, bits), references[name, bits]
    least, most = limits(model)
    for num_bytes in (least, *sorted(int(n) for n in rng.integers(least, most, 2)), most - 1):
        round_tokens = int(rng.choice([0, 16, 32, 64]))
        plan = placed(model, num_bytes)
        assert plan.cuts or plan.lookups or plan.neurons
        runtime, store = open_runtime(model, plan, round_tokens=round_tokens)
        print(f"{num_bytes} bytes, rounds of {round_tokens} in steps of {runtime.batch_tokens}")
        play(runtime, reference, rng)
        assert reads(store) > 0


@pytest.mark.parametrize("name", DENSE)
def test_any_plan_gives_the_same_bits(models, references, name) -> None:
    rng = draw_rng()
    model = models.dense(name)
    for _ in range(4):
        plan, threads = random_plan(model, rng), int(rng.integers(1, 4))
        round_tokens, batch_tokens = int(rng.choice([0, 7, 16, 32, 64])), int(rng.choice([70, 256]))
        chunk_bytes, depth = 4096 * int(rng.integers(1, 65)), int(rng.integers(1, 17))
        print(f"{plan}\n{threads} threads, rounds of {round_tokens} in steps of {batch_tokens}, {chunk_bytes}, {depth}")
        runtime, _ = open_runtime(
            model, plan, threads=threads, round_tokens=round_tokens, batch_tokens=batch_tokens,
            chunk_bytes=chunk_bytes, depth=depth,
        )  # fmt: skip
        play(runtime, references[name, None], rng)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["c4", "gguf q4_0"])
def test_every_way_to_read_gives_the_same_bits(models, references, name, method, threads) -> None:
    rng = draw_rng()
    model = models.dense(name)
    check_method(model, method)
    least, most = limits(model, threads)
    plan = placed(model, int(rng.integers(least, most)), threads)
    runtime, _ = open_runtime(model, plan, threads=threads, round_tokens=32, method=method)
    play(runtime, references[name, None], rng)


@pytest.mark.parametrize("round_tokens", [16, 32, 64])
def test_rounds_share_what_they_read(models, references, round_tokens) -> None:
    """A prompt in rounds reads no more than one token does, where all that a layer streams fits the ring."""
    model, reference = models.dense("bundled"), references["bundled", None]
    least, most = limits(model)
    for share in (0.6, 0.7, 0.8, 0.9):
        plan = placed(model, int(least + share * (most - least)))
        runtime, store = open_runtime(model, plan, round_tokens=round_tokens)
        print(f"{share}: steps of {runtime.batch_tokens}")
        if runtime.batch_tokens == 256:
            break
    assert runtime.batch_tokens == 256
    sequence = runtime.open_sequence()
    before = reads(store)
    logits = np.array(runtime.step([core_span(sequence, reference.tokens[0][:180])]))
    assert reference.holds(0, 0, 180, "last", logits)
    streamed = sum(
        source.num_bytes for source in model.weights.values() if source.name in {name for name, _ in plan.cuts}
    )
    # And what was read ahead for the next step; rows of the tied embedding are a strip each.
    assert reads(store) - before < 1.1 * streamed + 180 * 16 * 300 + plan.pool_bytes


def test_rounds_that_cannot_share_are_steps_of_their_own(models, references) -> None:
    rng = draw_rng()
    model = models.dense("bundled")
    runtime, _ = open_runtime(model, placed(model, limits(model)[0]), round_tokens=32)
    assert runtime.batch_tokens == 32
    play(runtime, references["bundled", None], rng)


def test_steps_without_logits_do_not_wait_for_the_output_matrix(models, references) -> None:
    """Nor do they use it; it may be read ahead for the step that comes next."""
    model, reference = models.dense("f32 untied"), references["f32 untied", None]
    name, source = "lm_head.weight", model.weights["lm_head.weight"]
    plan = Plan(cuts=((name, [0, 4, 9]),), pool_bytes=2 * source.num_bytes // 3, ring_bytes=source.num_bytes // 2)
    runtime, store = open_runtime(model, plan)
    sequence = runtime.open_sequence()
    runtime.step([core_span(sequence, reference.tokens[0][:50], "none")])
    assert store.stream_counters()["weights"][name] == (0, 0, 0.0)
    assert reads(store) <= 2 * plan.pool_bytes
    logits = np.array(runtime.step([core_span(sequence, reference.tokens[0][50:60])]))
    assert reference.holds(0, 50, 60, "last", logits)
    assert reads(store) >= source.num_bytes


def test_all_that_fits_is_read_once(models, references) -> None:
    """A pool that holds every piece: nothing is read after the first step."""
    model, reference = models.dense("c4"), references["c4", None]
    cuts = tuple((name, [0]) for name in model.weights if name.endswith("_proj.weight"))
    order = tuple((i, 0) for i in range(len(cuts)))
    plan = Plan(cuts=cuts, lock_order=order, pool_bytes=8 * model.num_bytes, ring_bytes=4096)
    runtime, store = open_runtime(model, plan)
    sequence = runtime.open_sequence()
    runtime.step([core_span(sequence, reference.tokens[0][:20])])
    before = reads(store)
    for i in range(20, 26):
        logits = np.array(runtime.step([core_span(sequence, reference.tokens[0][i : i + 1])]))
        assert reference.holds(0, i, i + 1, "last", logits)
    assert reads(store) == before


def test_wrong_plans_are_refused(models) -> None:
    model = models.dense("c4")
    name = "model.layers.0.mlp.up_proj.weight"
    for plan, message in (
        (Plan(cuts=((name, [0, 8, 4]),), pool_bytes=1 << 20), "expected ascending multiples"),
        (Plan(cuts=((name, [2]),), pool_bytes=1 << 20), "expected ascending multiples"),
        (Plan(cuts=((name, [0]), (name, [0])), pool_bytes=1 << 20), "and once"),
        (Plan(cuts=(("nothing", [0]),), pool_bytes=1 << 20), "expected one that was added"),
        (Plan(cuts=(("model.norm.weight", [0]),), pool_bytes=1 << 20), "expected a matrix"),
        (Plan(cuts=((name, [0]),), lock_order=((1, 0),), pool_bytes=1 << 20), "expected one that is cut"),
        (Plan(cuts=((name, [0]),), lock_order=((0, 0), (0, 0)), pool_bytes=1 << 20), "expected each once"),
    ):
        with pytest.raises(Exception, match=message):
            open_runtime(model, plan)
