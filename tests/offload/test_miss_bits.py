"""Experts that are not there when the router asks, computed from their leading parts: exactly those of N bits."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from seeds import draw_rng

from edgert import _core
from edgert.errors import UsageError
from edgert.loader import Model, open_model
from edgert.loader.views import check_miss_bits

from .conftest import LoadSmall
from .streamed_models import EXPERTS, MIXTURE, MIXTURE_LAYERS, MIXTURES, TOP_K, Models, converted
from .streamed_runs import Floats, Plan, core_span, limits, make_reference, mixtures, open_runtime, placed

KINDS = {
    "c4": MIXTURES["c4"],
    "p4": MIXTURES["p4"],
    "p7": converted(MIXTURE, "p7"),
    "c4 with outliers": converted(MIXTURE, "c4", 0.02),
    "p4 with outliers": converted(MIXTURE, "p4", 0.02),
}
CASES = [
    ("c4", None, 2), ("c4", None, 3), ("c4 with outliers", None, 2), ("p4", None, 2), ("p4 with outliers", None, 3),
    ("p7", None, 3), ("p7", 5, 2),
]  # fmt: skip
FEW_SLOTS, ALL_SLOTS = 4 * TOP_K, EXPERTS * MIXTURE_LAYERS


def opened(models: Models, name: str, bits: int | None = None) -> Model:
    return open_model(models.path(KINDS[name]), bits=bits)


def with_coarse_experts(model: Model, bits: int) -> Model:
    """The model if only its experts are read at fewer bits, by the loader."""
    narrow = open_model(model.checkpoint.path, bits=bits).weights
    weights = {name: narrow[name] if "expert" in source.role else source for name, source in model.weights.items()}
    return replace(model, weights=weights)


def slots(model: Model, count: int) -> Plan:
    """Room for so many experts and no more; each takes three windows at most."""
    most = max(
        sum(model.weights[name].num_bytes for name in mixtures(model)[0][3 * e : 3 * e + 3]) for e in range(EXPERTS)
    )
    one = -(-most // 4096) * 4096 + 2 * 8192
    return Plan(experts=mixtures(model), expert_bytes=count * one)


def alone(runtime: _core.Runtime, tokens: list[int]) -> Floats:
    """Logits of a sequence of its own."""
    sequence = runtime.open_sequence()
    try:
        return np.array(runtime.step([core_span(sequence, tokens, "all")]))
    finally:
        runtime.release(sequence)


def totals(store: _core.WeightStore) -> tuple[int, int]:
    """Experts that were asked for, and those that were computed from their leading parts."""
    layers = store.stream_counters()["experts"]
    return sum(e["routed"] for e in layers), sum(e["coarse"] for e in layers)


@pytest.mark.parametrize(("name", "bits", "miss_bits"), CASES)
@pytest.mark.parametrize("length", [1, 40])
def test_where_nothing_is_resident_all_experts_are_coarse(models, name, bits, miss_bits, length) -> None:
    rng = draw_rng()
    model = opened(models, name, bits)
    coarse, _ = open_runtime(with_coarse_experts(model, miss_bits))
    tokens = [int(token) for token in rng.integers(0, coarse.vocab_size, length)]
    expected = alone(coarse, tokens)
    assert not (expected == alone(open_runtime(model)[0], tokens)).all()
    for threads, limit in ((1, 0), (3, 2_000_000)):
        runtime, store = open_runtime(
            model, slots(model, ALL_SLOTS if length > 1 else FEW_SLOTS), predictor="none", miss_bits=miss_bits,
            threads=threads, limit_bytes_per_s=limit,
        )  # fmt: skip
        assert (alone(runtime, tokens) == expected).all(), threads
        routed, num_coarse = totals(store)
        assert routed == num_coarse > 0


@pytest.mark.parametrize(("name", "bits", "miss_bits"), CASES)
def test_the_rest_is_read_behind(models, name, bits, miss_bits) -> None:
    """In a cache that holds all of them experts end up whole: the same bits as without --miss-bits."""
    rng = draw_rng()
    model = opened(models, name, bits)
    reference = make_reference(model, (60,), seed=int(rng.integers(1 << 30)))
    runtime, store = open_runtime(model, slots(model, ALL_SLOTS), predictor="none", miss_bits=miss_bits)
    for _ in range(400):
        before = totals(store)
        logits = alone(runtime, reference.tokens[0])
        routed, num_coarse = (b - a for a, b in zip(before, totals(store), strict=True))
        if num_coarse == 0:
            break
    assert routed > 0 and num_coarse == 0
    assert (logits == reference.logits[0]).all()
    # Each was read once: its leading parts, then the others.
    whole = sum(model.weights[name].num_bytes for layer in mixtures(model) for name in layer)
    assert store.stream_counters()["num_bytes"] <= whole + ALL_SLOTS * 4 * 4096


@pytest.mark.parametrize("predictor", ["none", "blend", "frequency"])
@pytest.mark.parametrize(("name", "bits", "miss_bits"), [("c4", None, 2), ("p4 with outliers", None, 2)])
def test_every_expert_is_whole_or_coarse(models, name, bits, miss_bits, predictor) -> None:
    """Steps of one token in caches of all sizes: where all of a step's experts are of one kind, its bits are known."""
    rng = draw_rng()
    model = opened(models, name, bits)
    whole, _ = open_runtime(model)
    coarse, _ = open_runtime(with_coarse_experts(model, miss_bits))
    tokens = [int(token) for token in rng.integers(0, whole.vocab_size, 12)]
    expected = {token: (alone(whole, [token]), alone(coarse, [token])) for token in tokens}
    seen = {"whole": 0, "coarse": 0, "mixed": 0}
    for count in (TOP_K, TOP_K + 1, FEW_SLOTS, 20, ALL_SLOTS):
        threads, limit = int(rng.integers(1, 4)), int(rng.choice([0, 5_000_000]))
        print(f"{count} slots, {threads} threads, {limit} bytes/s")
        runtime, store = open_runtime(
            model, slots(model, count), predictor=predictor, miss_bits=miss_bits, threads=threads,
            limit_bytes_per_s=limit,
        )  # fmt: skip
        # Where all fit, until the disk has read what the steps asked for.
        for turn in range(60 if count < ALL_SLOTS else 5000):
            if turn >= 60 and seen["whole"] > 0:
                break
            token = tokens[min(int(rng.exponential(3)), len(tokens) - 1)]
            before = totals(store)
            logits = alone(runtime, [token])
            routed, num_coarse = (b - a for a, b in zip(before, totals(store), strict=True))
            assert routed == MIXTURE_LAYERS * TOP_K
            if num_coarse == 0:
                assert (logits == expected[token][0]).all()
            elif num_coarse == routed:
                assert (logits == expected[token][1]).all()
            seen["whole" if num_coarse == 0 else "coarse" if num_coarse == routed else "mixed"] += 1
    print(seen)
    assert min(seen["whole"], seen["coarse"]) > 0


def test_a_step_that_is_stopped_leaves_nothing_wrong(models) -> None:
    rng = draw_rng()
    model = opened(models, "p4")
    whole, _ = open_runtime(model)
    tokens = [int(token) for token in rng.integers(0, whole.vocab_size, 30)]
    expected = alone(whole, tokens)
    runtime, store = open_runtime(model, slots(model, ALL_SLOTS), miss_bits=2, limit_bytes_per_s=3_000_000)
    num_stopped = 0
    for _ in range(12):
        timer = threading.Timer(float(rng.random()) * 0.02, runtime.stop)
        timer.start()
        try:
            alone(runtime, tokens)
        except _core.StoppedError:
            num_stopped += 1
        timer.join()
    assert num_stopped > 0
    deadline = time.monotonic() + 30
    while True:
        before = totals(store)
        logits = alone(runtime, tokens)
        if totals(store)[1] == before[1]:
            break
        assert time.monotonic() < deadline, "some expert never has all of its bits"
    assert (logits == expected).all()


def test_a_prompt_in_rounds_and_the_placement_of_any_budget(models) -> None:
    """What it computes then depends on the disk; that it ends, and counts what it was asked for, does not."""
    rng = draw_rng()
    model = opened(models, "c4")
    least, most = limits(model)
    for num_bytes in (least, *(int(n) for n in rng.integers(least, most, 3))):
        runtime, store = open_runtime(model, placed(model, num_bytes), round_tokens=16, miss_bits=2)
        tokens = [int(token) for token in rng.integers(0, runtime.vocab_size, 100)]
        assert np.isfinite(alone(runtime, tokens)).all()
        routed, num_coarse = totals(store)
        assert 0 < num_coarse <= routed


def test_what_cannot_be_read_in_two_is_one_error(models) -> None:
    for model, bits, message in (
        (models.dense("c4"), 2, "miss_bits: found a model without experts, expected a mixture of experts"),
        (models.mixture("gguf q4_0"), 2, "miss_bits: found experts in q4_0, expected p3 to p7, c3 or c4"),
        (models.mixture("f16"), 2, "miss_bits: found experts in f16, expected"),
        (models.mixture("c4"), 4, "miss_bits: found 4, expected fewer than the 4"),
        (opened(models, "p7", 3), 3, "miss_bits: found 3, expected fewer than the 3"),
    ):
        with pytest.raises(UsageError, match=message):
            check_miss_bits(model.checkpoint.path, model.graph, model.weights, bits)
    model = models.mixture("c4")
    check_miss_bits(model.checkpoint.path, model.graph, model.weights, 3)


def test_the_public_way_says_what_was_computed_so(models, load_small: LoadSmall) -> None:
    path = models.path(KINDS["c4"])
    with load_small(path, miss_bits=2) as llm:
        assert llm.lossy == {"miss_bits": 2}
        done = llm.generate([1, 2, 3, 4], max_tokens=8, temperature=0)
        stats = done.timings.streaming
        assert stats is not None and stats.experts is not None
        assert 0 < stats.experts.coarse <= stats.experts.routed
    with load_small(path) as llm:
        assert llm.lossy == {}
        stats = llm.generate([1, 2, 3, 4], max_tokens=8, temperature=0).timings.streaming
        assert stats is not None and stats.experts is not None and stats.experts.coarse == 0
