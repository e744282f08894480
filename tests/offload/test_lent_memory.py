"""Memory that activations, keys and values do not need yet holds weights: they come and go, and the bits stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgert import _core
from edgert.engine.kv_plan import page_bytes
from edgert.loader import Model

from .streamed_models import EXPERTS, MIXTURE_LAYERS, TOP_K, Models
from .streamed_runs import Plan, core_span, draw_rng, limits, make_reference, mixtures, open_runtime, placed, play


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("models"))


def slot_bytes(model: Model) -> int:
    """More memory than one expert takes."""
    return sum(model.weights[name].num_bytes + 16384 for name in mixtures(model)[0][:3]) * 5 // 4


@pytest.mark.parametrize("name", ["c4", "gguf q4_0"])
def test_any_share_of_the_pool_may_be_lent(models: Models, name: str) -> None:
    rng = draw_rng()
    model = models.dense(name)
    reference = make_reference(model)
    least, most = limits(model)
    for _ in range(3):
        plan = placed(model, int(rng.integers(least, most)))
        lent_bytes = int(rng.integers(0, most))
        plan = replace(plan, pool_bytes=plan.pool_bytes + lent_bytes)
        print(f"{plan.pool_bytes} bytes, of which {lent_bytes} may be lent")
        runtime, _ = open_runtime(model, plan, round_tokens=int(rng.choice([0, 16])), lent_bytes=lent_bytes)
        play(runtime, reference, rng)


@pytest.mark.parametrize("name", ["c4", "gguf q4_0"])
def test_any_share_of_the_experts_memory_may_be_lent(models: Models, name: str) -> None:
    rng = draw_rng()
    model = models.mixture(name)
    reference = make_reference(model)
    for predictor in ("none", "blend"):
        lent_bytes = slot_bytes(model) * int(rng.integers(0, EXPERTS * MIXTURE_LAYERS))
        plan = Plan(experts=mixtures(model), expert_bytes=slot_bytes(model) * 2 * TOP_K + lent_bytes)
        print(f"{plan.expert_bytes} bytes, of which {lent_bytes} may be lent")
        runtime, _ = open_runtime(
            model, plan, round_tokens=int(rng.choice([0, 16])), lent_bytes=lent_bytes, predictor=predictor
        )
        play(runtime, reference, rng)


def test_contexts_take_their_memory_from_experts_and_give_it_back(models: Models) -> None:
    model = models.mixture("c4")
    reference = make_reference(model)
    fits, _ = open_runtime(model, batch_tokens=16)
    num_pages, sure_slots = 36, 2 * TOP_K
    lent_bytes = fits.activation_bytes + page_bytes(model.graph, "f16") * num_pages
    plan = Plan(experts=mixtures(model), expert_bytes=slot_bytes(model) * sure_slots + lent_bytes)
    runtime, store = open_runtime(model, plan, batch_tokens=16, lent_bytes=lent_bytes)

    def read(sequence: int, last: int) -> int:
        """Experts that there is room for, after these tokens of the reference."""
        for first in range(0, last, 16):
            end = min(first + 16, last)
            logits = np.array(runtime.step([core_span(sequence, reference.tokens[0][first:end], "all")]))
            assert reference.holds(0, first, end, "all", logits)
        return int(store.stream_counters()["num_expert_slots"])

    sequences = [runtime.open_sequence() for _ in range(num_pages // 3)]
    slots = [read(sequence, 150) for sequence in sequences]
    print(f"{slots} slots, {lent_bytes} bytes lent at most")
    assert slots == sorted(slots, reverse=True)
    assert slots[0] > slots[-1] + 2
    assert slots[-1] >= sure_slots
    for sequence in sequences:
        runtime.release(sequence)
    # A few free pages stay warm (csrc/kv/kv_store.cpp).
    assert read(runtime.open_sequence(), 150) >= slots[3] > slots[-1]


def locked_bytes(store: _core.WeightStore) -> int:
    return int(store.stream_counters()["locked_bytes"])


def pieces_bytes(model: Model, plan: Plan) -> int:
    """Memory of all pieces, found where there is more than enough."""
    runtime, store = open_runtime(model, replace(plan, pool_bytes=1 << 26))
    runtime.step([core_span(runtime.open_sequence(), [1, 2], "all")])
    return locked_bytes(store)


def test_where_all_pieces_fit_they_need_no_ring(models: Models) -> None:
    model = models.dense("q4_k")
    plan = replace(placed(model, limits(model)[0]), lookups=())
    least_bytes = pieces_bytes(model, plan)
    for pool_bytes, is_enough in ((least_bytes, True), (least_bytes - 4096, False)):
        runtime, store = open_runtime(model, replace(plan, pool_bytes=pool_bytes))
        sequence = runtime.open_sequence()
        runtime.step([core_span(sequence, [1, 2, 3])])
        before = store.stream_counters()["num_bytes"]
        for token in range(3):
            runtime.step([core_span(sequence, [token])])
        assert (store.stream_counters()["num_bytes"] == before) == is_enough
        assert (locked_bytes(store) == least_bytes) == is_enough


def test_a_long_prompt_takes_its_memory_from_pieces_and_gives_it_back(models: Models) -> None:
    model = models.dense("bundled")
    reference = make_reference(model)
    plan = placed(model, limits(model)[0])
    all_bytes = pieces_bytes(model, plan)
    fits, _ = open_runtime(model)
    lent_bytes = fits.activation_bytes + page_bytes(model.graph, "f16") * 8
    plan = replace(plan, pool_bytes=all_bytes + lent_bytes // 2)
    runtime, store = open_runtime(model, plan, lent_bytes=lent_bytes)
    for _ in range(2):
        sequence = runtime.open_sequence()
        locked = []
        for first, last in ((0, 1), (1, 180), (180, 181), (181, 182)):
            logits = np.array(runtime.step([core_span(sequence, reference.tokens[0][first:last], "all")]))
            assert reference.holds(0, first, last, "all", logits)
            locked.append(locked_bytes(store))
        print(f"{locked} of {all_bytes} bytes, {lent_bytes} lent at most")
        assert locked[0] == locked[2] == locked[3] == all_bytes > locked[1]
        runtime.release(sequence)
