"""A prompt of several rounds visits each expert once in a layer, however few of them the memory holds."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from seeds import draw_rng

from edgert import _core
from edgert.engine.offload_items import activation_bytes, carried_bytes
from edgert.loader import Model
from edgert.offload.pieces import SECTOR_BYTES

from .streamed_models import DEEP_LAYERS, DEEP_MIXTURES, EXPERTS, MIXTURE_LAYERS, TOP_K, Models
from .streamed_runs import (
    CONTEXT,
    Plan,
    Reference,
    core_span,
    make_reference,
    mixtures,
    open_runtime,
    play,
)

PROMPT = 180


@pytest.fixture(scope="module")
def references(models: Models) -> dict[str, Reference]:
    return {name: make_reference(models.deep_mixture(name), (PROMPT, PROMPT, 40)) for name in DEEP_MIXTURES}


def slots(model: Model, num_experts: int) -> Plan:
    """Memory for so many experts, and where files are not ours for the rows of a few that wait to be put in place."""
    raw = 1 if model.checkpoint.kind == "edgert" else 8 / 7
    each = max(sum(room(model, name) for name in layer[:3]) for layer in mixtures(model))
    return Plan(experts=mixtures(model), expert_bytes=int(raw * num_experts * each) + 8192)


def room(model: Model, name: str) -> int:
    """Whole sectors, and one more at each end."""
    return (-(-model.weights[name].num_bytes // SECTOR_BYTES) + 2) * SECTOR_BYTES


def routed(model: Model, tokens: list[int]) -> list[int]:
    """Of each layer, how many experts the router asks for in a prompt: from weights that are in memory."""
    runtime, _ = open_runtime(model, threads=1)
    runtime.start_routing_trace()
    runtime.step([core_span(runtime.open_sequence(), tokens)])
    return [len(np.unique(experts)) for experts, *_ in runtime.stop_routing_trace()]


def draw_rounds(rng: np.random.Generator) -> int:
    """Tokens of a round: some divide the prompt, most do not."""
    return int(rng.choice([16, 18, 30, 60, rng.integers(1, 100)]))


@pytest.mark.parametrize("predictor", ["none", "blend"])
@pytest.mark.parametrize("name", DEEP_MIXTURES)
def test_each_expert_is_read_once(models, references, name, predictor) -> None:
    rng = draw_rng()
    model, reference = models.deep_mixture(name), references[name]
    wanted, wanted_next = (routed(model, tokens) for tokens in reference.tokens[:2])
    assert len(wanted) == DEEP_LAYERS
    assert min(wanted[:-1]) > EXPERTS / 2
    assert wanted[-1] == TOP_K  # behind the last attention there is one token
    # Every expert once: what the disk reads for one of them, with the sectors around it.
    runtime, store = open_runtime(model, slots(model, DEEP_LAYERS * EXPERTS), predictor="none")
    runtime.step([core_span(runtime.open_sequence(), reference.tokens[0])])
    assert [e["misses"] for e in store.stream_counters()["experts"]] == wanted
    expert_bytes = store.stream_counters()["num_bytes"] / sum(wanted)
    for _ in range(3):
        num_slots, round_tokens = int(rng.integers(2 * TOP_K, EXPERTS)), draw_rounds(rng)
        threads = int(rng.integers(1, 4))
        print(f"{num_slots} experts, rounds of {round_tokens}, {threads} threads")
        runtime, store = open_runtime(
            model, slots(model, num_slots), round_tokens=round_tokens, predictor=predictor, threads=threads
        )
        residents, before = 0, 0.0
        for i, num_wanted in enumerate((sum(wanted), sum(wanted_next))):
            logits = np.array(runtime.step([core_span(runtime.open_sequence(), reference.tokens[i])]))
            assert reference.holds(i, 0, PROMPT, "last", logits)
            counters = store.stream_counters()
            num_read = counters["num_bytes"] / expert_bytes - before
            num_resident = sum(e["hits"] + e["late"] for e in counters["experts"]) - residents
            # What was predicted and came true has been read in this step or the one before.
            num_new = num_wanted if predictor == "blend" else num_wanted - num_resident
            print(f"read {num_read:.1f}, wanted {num_wanted}, of which resident {num_resident}")
            assert num_read <= 1.1 * num_new
            residents, before = residents + num_resident, before + num_read


@pytest.mark.parametrize("name", ["c4", "gguf q4_0"])
def test_experts_that_are_there_make_room_for_those_before_them(models, name) -> None:
    """A prompt without logits uses one layer only, so the next one finds all memory full of its experts."""
    rng = draw_rng()
    model = models.mixture(name)
    reference = make_reference(model, (PROMPT, PROMPT))
    all_slots = slots(model, MIXTURE_LAYERS * EXPERTS)
    runtime, store = open_runtime(model, all_slots, predictor="none")
    runtime.step([core_span(runtime.open_sequence(), reference.tokens[0], "none")])
    expert_bytes = store.stream_counters()["num_bytes"] / store.stream_counters()["experts"][0]["misses"]
    num_wanted = routed(model, reference.tokens[1][:-1])[0]
    for num_slots in (TOP_K, int(rng.integers(TOP_K + 1, EXPERTS - 2))):
        round_tokens = draw_rounds(rng)
        print(f"{num_slots} experts, rounds of {round_tokens}")
        runtime, store = open_runtime(model, slots(model, num_slots), round_tokens=round_tokens, predictor="none")
        runtime.step([core_span(runtime.open_sequence(), reference.tokens[0], "none")])
        before = store.stream_counters()
        sequence = runtime.open_sequence()
        runtime.step([core_span(sequence, reference.tokens[1][:-1], "none")])
        after = store.stream_counters()
        hits = after["experts"][0]["hits"] - before["experts"][0]["hits"]
        num_read = (after["num_bytes"] - before["num_bytes"]) / expert_bytes
        assert hits >= TOP_K - 1
        assert num_read < num_wanted - hits + 2.5  # two make room, and read sizes differ by sectors
        logits = np.array(runtime.step([core_span(sequence, reference.tokens[1][-1:])]))
        assert reference.holds(1, PROMPT - 1, PROMPT, "last", logits)


@pytest.mark.parametrize("name", DEEP_MIXTURES)
def test_batches_in_rounds_give_the_same_bits(models, references, name) -> None:
    rng = draw_rng()
    model = models.deep_mixture(name)
    for _ in range(2):
        num_slots, round_tokens = int(rng.integers(TOP_K, 2 * EXPERTS)), draw_rounds(rng)
        print(f"{num_slots} experts, rounds of {round_tokens}")
        runtime, _ = open_runtime(model, slots(model, num_slots), round_tokens=round_tokens)
        play(runtime, references[name], rng)


@pytest.mark.parametrize("name", ["c4", "gguf q4_0"])
def test_a_stop_in_the_middle_leaves_nothing_wrong_behind(models, references, name) -> None:
    rng = draw_rng()
    model, reference = models.deep_mixture(name), references[name]
    num_stopped = 0
    for num_slots in (TOP_K, 10, EXPERTS):
        round_tokens = draw_rounds(rng)
        print(f"{num_slots} experts, rounds of {round_tokens}")
        runtime, _ = open_runtime(
            model, slots(model, num_slots), round_tokens=round_tokens, limit_bytes_per_s=40_000_000
        )
        sequence, start = runtime.open_sequence(), time.monotonic()
        runtime.step([core_span(sequence, reference.tokens[0])])
        whole_s = time.monotonic() - start
        runtime.release(sequence)
        for delay_s in rng.uniform(0, whole_s, 3):
            sequence = runtime.open_sequence()
            timer = threading.Timer(float(delay_s), runtime.stop)
            timer.start()
            try:
                runtime.step([core_span(sequence, reference.tokens[0])])
                runtime.release(sequence)
                sequence = runtime.open_sequence()
            except _core.StoppedError:
                num_stopped += 1
                assert runtime.length(sequence) == 0
            timer.join()
            logits = np.array(runtime.step([core_span(sequence, reference.tokens[0])]))
            assert reference.holds(0, 0, PROMPT, "last", logits)
            runtime.release(sequence)
    assert num_stopped > 0


def test_the_routing_is_that_of_weights_in_memory(models, references) -> None:
    """A trace has what predicts the next layer's experts, in rounds as well."""
    model, reference = models.deep_mixture("c4"), references["c4"]
    traces = []
    for plan, round_tokens in ((None, 0), (slots(model, 8), 32)):
        runtime, _ = open_runtime(model, plan, round_tokens=round_tokens)
        runtime.start_routing_trace()
        runtime.step([core_span(runtime.open_sequence(), reference.tokens[0])])
        traces.append(runtime.stop_routing_trace())
    for in_memory, streamed in zip(*traces, strict=True):
        for expected, found in zip(in_memory, streamed, strict=True):
            assert (expected is None) == (found is None)
            assert expected is None or (expected == found).all()


@pytest.mark.parametrize("name", DEEP_MIXTURES)
def test_what_is_carried_is_counted(models, name) -> None:
    model = models.deep_mixture(name)
    for round_tokens in (16, 60, 128):
        runtime, _ = open_runtime(model, slots(model, 10), round_tokens=round_tokens)
        assert runtime.batch_tokens == CONTEXT
        bound = activation_bytes(model, round_tokens) + CONTEXT * carried_bytes(model)
        assert runtime.activation_bytes <= bound < 2 * runtime.activation_bytes
