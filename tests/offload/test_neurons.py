"""Columns that are read neuron by neuron: which are read, and how often."""

from __future__ import annotations

from dataclasses import replace

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


def test_too_little_room_is_refused(model: Model) -> None:
    plan = plan_with(model, 0)
    with pytest.raises(Exception, match="neurons: found memory for 127 of them, expected at least 128"):
        open_runtime(model, replace(plan, neuron_bytes=plan.neuron_bytes - 1))
