"""Experts that come and go give the bits of experts that are in memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from seeds import draw_rng

from edgert.errors import FileFormatError
from edgert.loader import Model, open_model

from .streamed_models import EXPERTS, MIXTURE_LAYERS, MIXTURES, TOP_K, Models
from .streamed_runs import (
    Plan,
    Reference,
    core_span,
    limits,
    make_reference,
    mixtures,
    open_runtime,
    placed,
    play,
    random_plan,
)

# What nothing can be learned for before it runs: no trace, no next router's logits.
PREDICTORS = ("none", "blend", "previous_token", "frequency", "affinity", "token")
POLICIES = ("lru", "lfu", "lfru", "score")


@pytest.fixture(scope="module")
def references(models: Models) -> dict[str, Reference]:
    return {name: make_reference(models.mixture(name)) for name in MIXTURES}


def experts_only(model: Model, num_bytes: int) -> Plan:
    return Plan(experts=mixtures(model), expert_bytes=num_bytes)


def slot_bytes(model: Model) -> int:
    """More memory than one expert takes."""
    return sum(model.weights[name].num_bytes + 16384 for name in mixtures(model)[0][:3]) * 5 // 4


@pytest.mark.parametrize("name", MIXTURES)
def test_every_budget_gives_the_same_bits(models, references, name) -> None:
    rng = draw_rng()
    model = models.mixture(name)
    least, most = limits(model)
    for num_bytes in (least, *sorted(int(n) for n in rng.integers(least, most, 2)), most - 1):
        round_tokens = int(rng.choice([0, 16, 32, 64]))
        runtime, store = open_runtime(model, placed(model, num_bytes), round_tokens=round_tokens)
        print(f"{num_bytes} bytes, rounds of {round_tokens} in steps of {runtime.batch_tokens}")
        play(runtime, references[name], rng)
        assert store.stream_counters()["num_bytes"] > 0


@pytest.mark.parametrize("predictor", PREDICTORS)
@pytest.mark.parametrize("name", ["c4", "gguf q4_0"])
def test_every_predictor_and_policy_gives_the_same_bits(models, references, name, predictor) -> None:
    rng = draw_rng()
    model = models.mixture(name)
    for policy in POLICIES:
        num_bytes = slot_bytes(model) * int(rng.integers(2 * TOP_K, 20))
        runtime, store = open_runtime(
            model, experts_only(model, num_bytes), policy=policy, predictor=predictor, threads=int(rng.integers(1, 4))
        )
        play(runtime, references[name], rng)
        layers = store.stream_counters()["experts"]
        assert len(layers) == MIXTURE_LAYERS
        assert all(e["routed"] == e["hits"] + e["late"] + e["misses"] > 0 for e in layers)
        if predictor == "none":
            assert all(e["prefetched"] == e["late"] == 0 for e in layers)


@pytest.mark.parametrize("num_tokens", [1, 7, 100])
@pytest.mark.parametrize("name", ["p4", "gguf q4_0", "f32 stacked"])
def test_steps_of_every_length_give_the_same_bits(models, references, name, num_tokens) -> None:
    """A step of 100 tokens wants every expert of a layer, of which only a few fit at a time."""
    rng = draw_rng()
    model, reference = models.mixture(name), references[name]
    plan = experts_only(model, slot_bytes(model) * 2 * TOP_K)
    for threads in (1, 3):
        runtime, _ = open_runtime(model, plan, threads=threads, predictor=str(rng.choice(PREDICTORS)))
        sequence = runtime.open_sequence()
        for first in range(0, 100, num_tokens) if num_tokens > 1 else range(12):
            last = min(first + num_tokens, 100)
            logits = np.array(runtime.step([core_span(sequence, reference.tokens[0][first:last], "all")]))
            assert reference.holds(0, first, last, "all", logits), (threads, first)


@pytest.mark.parametrize("name", ["c4", "gguf q4_0", "f16"])
def test_together_with_streamed_matrices(models, references, name) -> None:
    rng = draw_rng()
    model = models.mixture(name)
    for _ in range(3):
        num_slots = int(rng.integers(2 * TOP_K, 30))
        plan = replace(random_plan(model, rng), experts=mixtures(model), expert_bytes=slot_bytes(model) * num_slots)
        threads, round_tokens = int(rng.integers(1, 4)), int(rng.choice([0, 16, 50]))
        print(f"{plan}\n{num_slots} experts, {threads} threads, rounds of {round_tokens}")
        runtime, _ = open_runtime(model, plan, threads=threads, round_tokens=round_tokens)
        play(runtime, references[name], rng)


def test_experts_that_all_fit_are_read_once(models, references) -> None:
    model, reference = models.mixture("c4"), references["c4"]
    plan = experts_only(model, slot_bytes(model) * MIXTURE_LAYERS * EXPERTS)
    runtime, store = open_runtime(model, plan, predictor="none")
    sequence = runtime.open_sequence()
    runtime.step([core_span(sequence, reference.tokens[0][:150])])
    runtime.step([core_span(sequence, reference.tokens[0][150:170])])
    counters = store.stream_counters()
    assert sum(e["misses"] for e in counters["experts"]) <= MIXTURE_LAYERS * EXPERTS
    whole = sum(model.weights[name].num_bytes for layer in mixtures(model) for name in layer)
    assert counters["num_bytes"] <= whole + MIXTURE_LAYERS * EXPERTS * 6 * 4096  # and the sectors around each matrix


@pytest.mark.parametrize("options", [{"active_experts": 1}, {"active_experts": 2, "min_expert_weight": 0.4}])
def test_fewer_experts_give_the_bits_of_the_run_that_fits(models, options) -> None:
    rng = draw_rng()
    model = open_model(models.path(MIXTURES["c4"]), **options)
    reference = make_reference(model)
    least, most = limits(model)
    assert least < limits(models.mixture("c4"))[0]
    for num_bytes in (least, int(rng.integers(least, most))):
        runtime, store = open_runtime(model, placed(model, num_bytes), round_tokens=int(rng.choice([0, 16])))
        play(runtime, reference, rng)
        assert store.stream_counters()["num_bytes"] > 0


def test_too_little_memory_is_refused(models) -> None:
    model = models.mixture("c4")
    with pytest.raises(FileFormatError, match="expected at least 3"):
        open_runtime(model, experts_only(model, model.weights[mixtures(model)[0][0]].num_bytes))
