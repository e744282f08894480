"""Columns that are read neuron by neuron: which are read, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from convert.conftest import LLAMA, write_folder
from safetensors.numpy import load_file, save_file
from seeds import draw_rng

from edgert import _core
from edgert.convert import convert
from edgert.engine.offload_items import weight_items
from edgert.loader import Model, open_model

from .streamed_runs import (
    METHODS,
    Plan,
    check_method,
    core_span,
    make_reference,
    neuron_room,
    open_runtime,
    play,
)

LAYERS, NEURONS, HIDDEN = 3, 600, 1040  # records of a sector's part, and across sectors
ARCEE = LLAMA | {
    "architectures": ["ArceeForCausalLM"], "model_type": "arcee", "hidden_act": "relu2", "num_hidden_layers": LAYERS,
    "hidden_size": HIDDEN, "intermediate_size": NEURONS, "num_attention_heads": 4, "head_dim": 16,
    "max_position_embeddings": 256,
}  # fmt: skip
DEAD_EVERY = 3  # this share of the neurons is never active
ALL_ROOM = 1 << 22
WINDOW_BYTES = (32 << 10) + 4096


@pytest.fixture(scope="module", params=["p4", "p8"])
def model(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Model:
    """A third of its neurons has weights of 0 in front, so that they are never active."""
    folder = tmp_path_factory.mktemp("arcee")
    source = write_folder(folder / "source", ARCEE, "float32").path
    weights = load_file(source / "model.safetensors")
    for name in weights:
        if "up_proj" in name:
            weights[name] = weights[name].copy()
            weights[name][::DEAD_EVERY] = 0
    save_file(weights, source / "model.safetensors")
    convert(source, folder / "out", quant=request.param)
    return open_model(folder / "out")


@pytest.fixture(scope="module")
def reference(model: Model):
    return make_reference(model)


def plan_with(model: Model, extra_bytes: int) -> Plan:
    """All matrices stay but those that lie neuron by neuron; these have so much more memory than they need."""
    items = [item for item in weight_items(model) if item.records is not None]
    assert len(items) == LAYERS
    records = [item.records for item in items if item.records is not None]
    return Plan(neurons=tuple(item.name for item in items), neuron_bytes=neuron_room(records) + extra_bytes)


def totals(store: _core.WeightStore) -> dict[str, int]:
    layers = store.stream_counters()["neurons"]
    assert len(layers) == LAYERS
    return {key: sum(layer[key] for layer in layers) for key in layers[0]}


def active_neurons(model: Model, steps: Sequence[Sequence[int]], plan: Plan | None = None) -> list[list[Any]]:
    """Of each step, by matrix, how many of its tokens activate each neuron."""
    runtime, _ = open_runtime(model, plan)
    sequence, counted = runtime.open_sequence(), []
    for tokens in steps:
        runtime.start_neuron_counts()
        runtime.step([core_span(sequence, tokens, "all")])
        counts = runtime.stop_neuron_counts()
        assert list(counts) == [f"model.layers.{layer}.mlp.down_proj.weight" for layer in range(LAYERS)]
        assert [num_tokens for num_tokens, _ in counts.values()] == [len(tokens)] * LAYERS
        counted.append([active for _, active in counts.values()])
    return counted


def hits_of_the_rule(counts: Sequence[Any], num_tokens: Sequence[int], frequency: Any, quota: int) -> list[int]:
    """What a cache of `quota` neurons holds of the active ones, step by step: the rule once more.

    What it begins with counts as 8 tokens, and each later one as much as those before, up to 64; then the last 64 count
    most. A use at the last step is worth a tenth beside it.
    """
    known, num_known = np.array(frequency, np.float32), 8
    kept: set[int] = set()
    hits = []
    for active, num in zip(counts, num_tokens, strict=True):
        weight = np.float32(1)
        for _ in range(num):
            num_known += 1
            weight *= np.float32(num_known - 1) / np.float32(num_known) if num_known <= 64 else np.float32(63 / 64)
        if num > 1:  # rounded once
            weight = np.float32(num_known - num) / np.float32(num_known)
        known = weight * known + (np.float32(1) - weight) / np.float32(num) * active.astype(np.float32)
        used = set(np.flatnonzero(active).tolist())
        hits.append(len(used & kept))
        worth = known + np.where(active > 0, np.float32(0.1), np.float32(0))
        kept = set(sorted(kept | used, key=lambda neuron: (-worth[neuron], neuron))[:quota])
    return hits


def step_alone(runtime: _core.Runtime, tokens: Sequence[int]) -> None:
    sequence = runtime.open_sequence()
    runtime.step([core_span(sequence, tokens)])
    runtime.release(sequence)


def record_bytes(model: Model) -> int:
    return next(item.records.record_bytes for item in weight_items(model) if item.records is not None)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("extra_bytes", [0, 60_000, ALL_ROOM])
def test_every_room_gives_the_same_bits(model: Model, reference, method: str, extra_bytes: int) -> None:
    rng = draw_rng()
    check_method(model, method)
    threads, round_tokens = int(rng.integers(1, 4)), int(rng.choice([0, 7, 32]))
    print(f"{threads} threads, rounds of {round_tokens}")
    runtime, store = open_runtime(
        model, plan_with(model, extra_bytes), threads=threads, round_tokens=round_tokens, method=method,
        depth=int(rng.integers(1, 17)), chunk_bytes=4096 * int(rng.integers(1, 17)),
    )  # fmt: skip
    play(runtime, reference, rng)
    counted = totals(store)
    assert counted["missed_bytes"] == record_bytes(model) * (counted["active"] - counted["hits"])
    assert counted["requested_bytes"] == counted["missed_bytes"]
    assert counted["requested_bytes"] <= counted["sector_bytes"]
    assert store.stream_counters()["num_bytes"] == counted["sector_bytes"]


def test_only_active_neurons_are_read(model: Model, reference) -> None:
    """With room for all, each neuron that lives is read once, and those that are never active are not."""
    runtime, store = open_runtime(model, plan_with(model, ALL_ROOM))
    sequence = runtime.open_sequence()
    living = LAYERS * (NEURONS - NEURONS // DEAD_EVERY)
    first_token = None
    for step in range(60):
        runtime.step([core_span(sequence, [reference.tokens[0][step]])])
        counted = totals(store)
        first_token = first_token or counted
        assert counted["requested_bytes"] <= living * record_bytes(model)
        assert counted["active"] <= (step + 1) * living
    assert first_token["hits"] == 0
    assert 0 < first_token["active"] < living  # squared ReLU: about half of them, and less after rounding
    assert counted["requested_bytes"] > first_token["requested_bytes"]
    again = runtime.open_sequence()
    for token in reference.tokens[0][:60]:
        runtime.step([core_span(again, [token])])
    assert totals(store)["requested_bytes"] == counted["requested_bytes"]  # the same tokens: nothing is new


def test_often_used_neurons_stay(model: Model, reference) -> None:
    """A token over and over: with room for its neurons in every layer, it is read once."""
    one_token = reference.tokens[0][:1]
    runtime, store = open_runtime(model, plan_with(model, ALL_ROOM))
    runtime.step([core_span(runtime.open_sequence(), one_token)])
    needed = totals(store)["requested_bytes"]
    runtime, store = open_runtime(model, plan_with(model, 2 * needed))
    for _ in range(5):
        runtime.step([core_span(runtime.open_sequence(), one_token)])
    assert totals(store)["requested_bytes"] == needed
    assert totals(store)["hits"] == 4 * totals(store)["active"] // 5


@pytest.mark.parametrize("is_known", [False, True])
def test_what_was_active_most_often_stays(model: Model, is_known: bool) -> None:
    """Every hit, against the rule once more. With a frequency: of the first matrix, which nothing fills beforehand."""
    rng = draw_rng()
    plan = plan_with(model, 1000 * record_bytes(model))
    # An eighth of the memory is for windows, a quarter of the slots for neurons that are about to be used.
    num_windows = max(2, plan.neuron_bytes // 8 // WINDOW_BYTES)
    num_slots = (plan.neuron_bytes - num_windows * WINDOW_BYTES) // record_bytes(model)
    quota = (num_slots - num_slots // 4) // LAYERS
    if is_known:
        plan = replace(plan, neuron_frequency=tuple(rng.random(NEURONS, np.float32) for _ in range(LAYERS)))
    vocab_size = open_runtime(model)[0].vocab_size
    num_tokens = [40] + [1] * 80
    steps = [rng.integers(0, vocab_size, num).tolist() for num in num_tokens]
    counts = active_neurons(model, steps)
    runtime, store = open_runtime(model, plan)
    sequence, hits = runtime.open_sequence(), []
    for tokens in steps:
        before = [layer["hits"] for layer in store.stream_counters()["neurons"]]
        runtime.step([core_span(sequence, tokens, "all")])
        after = [layer["hits"] for layer in store.stream_counters()["neurons"]]
        hits.append([b - a for a, b in zip(before, after, strict=True)])
    for layer in range(1 if is_known else LAYERS):
        known = plan.neuron_frequency[layer] if is_known else np.zeros(NEURONS)
        expected = hits_of_the_rule([step[layer] for step in counts], num_tokens, known, quota)
        assert [step[layer] for step in hits] == expected
        assert 0 < sum(expected) < sum(int((step[layer] > 0).sum()) for step in counts)


def test_counts_are_those_of_what_is_multiplied_with(model: Model, reference) -> None:
    """In memory or streamed, token by token or at once; and as many as the stream has counted for itself."""
    tokens = reference.tokens[1]
    each = active_neurons(model, [[token] for token in tokens])
    whole = active_neurons(model, [tokens])[0]
    assert all((sum(step[layer] for step in each) == whole[layer]).all() for layer in range(LAYERS))
    streamed = active_neurons(model, [[token] for token in tokens], plan_with(model, 60_000))
    assert all((a[layer] == b[layer]).all() for a, b in zip(each, streamed, strict=True) for layer in range(LAYERS))
    for active in whole:
        assert len(active) == NEURONS
        assert not active[::DEAD_EVERY].any() and active.max() <= len(tokens)
    runtime, store = open_runtime(model, plan_with(model, 60_000))
    sequence = runtime.open_sequence()
    for token in tokens:
        runtime.step([core_span(sequence, [token])])
    assert totals(store)["active"] == sum(int(active.sum()) for active in whole)
    assert runtime.stop_neuron_counts() == {}


def test_free_memory_is_filled_with_what_is_known_to_be_active(model: Model, reference) -> None:
    """Each neuron that is known to live comes once, asked for or not; nothing else does, and nothing without that."""
    living = np.arange(NEURONS) % DEAD_EVERY != 0
    num_bytes = int(living.sum()) * LAYERS * record_bytes(model)
    plan = replace(plan_with(model, ALL_ROOM), neuron_frequency=(living.astype(np.float32),) * LAYERS)
    runtime, store = open_runtime(model, plan)
    token = reference.tokens[0][:1]
    first = None
    for _ in range(200):
        step_alone(runtime, token)
        counted = totals(store)
        first = first or counted
        assert counted["filled_bytes"] + counted["requested_bytes"] <= num_bytes
    assert counted["filled_bytes"] > 0
    assert counted["filled_bytes"] + counted["requested_bytes"] == num_bytes
    assert first["requested_bytes"] <= counted["requested_bytes"]
    sequence = runtime.open_sequence()
    for step in range(60):
        runtime.step([core_span(sequence, [reference.tokens[0][step]])])
    assert totals(store)["requested_bytes"] == counted["requested_bytes"]
    runtime, store = open_runtime(model, replace(plan, neuron_frequency=()))
    for _ in range(20):
        step_alone(runtime, token)
    assert totals(store)["filled_bytes"] == 0


@pytest.mark.parametrize("extra_bytes", [0, 60_000, ALL_ROOM])
def test_what_is_known_changes_no_bit(model: Model, reference, extra_bytes: int) -> None:
    rng = draw_rng()
    frequency = tuple(rng.random(NEURONS, np.float32) for _ in range(LAYERS))
    plan = replace(plan_with(model, extra_bytes), neuron_frequency=frequency)
    runtime, _ = open_runtime(model, plan, threads=int(rng.integers(1, 4)), round_tokens=int(rng.choice([0, 7, 32])))
    play(runtime, reference, rng)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([NEURONS] * (LAYERS - 1), f"of {LAYERS - 1} matrices, expected {LAYERS}"),
        ([NEURONS, NEURONS - 1, NEURONS], f"layers.1.mlp.down_proj.weight: found how often {NEURONS - 1} neurons"),
    ],
)
def test_frequency_of_another_model_is_refused(model: Model, sizes: list[int], message: str) -> None:
    plan = replace(plan_with(model, 0), neuron_frequency=tuple(np.zeros(size, np.float32) for size in sizes))
    with pytest.raises(Exception, match=message):
        open_runtime(model, plan)


def test_too_little_room_is_refused(model: Model) -> None:
    plan = plan_with(model, 0)
    with pytest.raises(Exception, match="neurons: found memory for 127 of them, expected at least 128"):
        open_runtime(model, replace(plan, neuron_bytes=plan.neuron_bytes - 1))
