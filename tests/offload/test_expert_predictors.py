"""Each predictor on routings whose cause is known, and on routings that have none."""

import numpy as np
import pytest
from numpy.typing import NDArray

from edgert import _core

from .routings import Routing, random_routing

LAYERS, EXPERTS, TOP_K, TOKENS = 3, 16, 2, 1500
REAL = [name for name in _core.predictor_names() if name != "none"]


def recalls(
    predictor: str,
    routing: Routing,
    *,
    tokens: NDArray[np.int32] | None = None,
    gates: NDArray[np.float32] | None = None,
    profile: Routing | None = None,
) -> list[float]:
    """The share of routed experts among the likeliest top_k, of each layer, after the first third."""
    sizes = np.full((LAYERS, EXPERTS), 100, np.int64)
    cache = _core.ExpertCache(
        sizes, 1600, top_k=TOP_K, policy="lru", predictor=predictor, prefetch_bytes=200, profile=profile or routing
    )
    third, counted = len(routing[0]) // 3, []
    for part in (slice(0, third), slice(third, None)):
        arrays = [None if a is None else np.ascontiguousarray(a[part]) for a in (*routing, tokens, gates)]
        cache.simulate(*arrays, disk_bytes_per_s=1000, layer_s=1)  # type: ignore[arg-type]
        counted.append([(layer["recalled_top_k"], layer["predicted_routed"]) for layer in cache.counters])
    before, after = np.array(counted)
    hits, routed = (after - before).T
    return [float(share) for share in hits / np.maximum(1, routed)]


def by_rule(seed: int) -> tuple[Routing, NDArray[np.int32]]:
    """Each token of a vocabulary of 40 has its experts in each layer, drawn once."""
    rng = np.random.default_rng(seed)
    rule = random_routing(seed, 40, LAYERS, EXPERTS, TOP_K, skew=5.0)
    tokens = rng.integers(0, 40, TOKENS).astype(np.int32)
    return (rule[0][tokens], rule[1][tokens]), tokens


def test_token_learns_what_a_token_does() -> None:
    routing, tokens = by_rule(1)
    assert min(recalls("token", routing, tokens=tokens)) > 0.99
    assert max(recalls("previous_token", routing, tokens=tokens)) < 0.4


def test_token_knows_nothing_without_ids() -> None:
    routing, _ = by_rule(1)
    assert max(recalls("token", routing)) < 0.5


def test_previous_token_is_right_where_nothing_changes() -> None:
    one = random_routing(2, 1, LAYERS, EXPERTS, TOP_K)
    routing = np.repeat(one[0], TOKENS, axis=0), np.repeat(one[1], TOKENS, axis=0)
    assert recalls("previous_token", routing) == [1.0] * LAYERS


def test_frequency_finds_the_popular_ones() -> None:
    """Two experts of each layer come nine times out of ten."""
    routing = random_routing(3, TOKENS, LAYERS, EXPERTS, TOP_K)
    rng = np.random.default_rng(3)
    is_usual = rng.random((TOKENS, LAYERS)) < 0.9
    routing[0][is_usual] = (4, 11)
    assert min(recalls("frequency", routing)) > 0.88


@pytest.mark.parametrize("predictor", ["affinity", "table"])
def test_affinity_and_table_follow_the_layer_before(predictor: str) -> None:
    """Layer 0 is drawn, layer l + 1 chooses a permutation of what layer l chose."""
    first = random_routing(4, TOKENS, 1, EXPERTS, TOP_K, skew=5.0)
    rng = np.random.default_rng(4)
    chosen = [first[0][:, 0]]
    for _ in range(LAYERS - 1):
        chosen.append(np.sort(rng.permutation(EXPERTS).astype(np.int16)[chosen[-1]], axis=1))
    routing = np.stack(chosen, axis=1), np.repeat(first[1], LAYERS, axis=1)
    found = recalls(predictor, routing)
    assert min(found[1:]) > 0.95
    assert found[0] < 0.5


def gates_of(routing: Routing, seed: int, noise: float) -> NDArray[np.float32]:
    """Logits whose likeliest top_k are the routed experts, but for noise; zeros for the first layer."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, noise, (*routing[0].shape[:2], EXPERTS)).astype(np.float32)
    np.put_along_axis(
        logits, routing[0].astype(np.int64), np.take_along_axis(logits, routing[0].astype(np.int64), 2) + 4, 2
    )
    logits[:, 0] = 0
    return logits


def test_cross_layer_gate_takes_the_largest_logits() -> None:
    routing = random_routing(5, TOKENS, LAYERS, EXPERTS, TOP_K, skew=5.0)
    assert recalls("cross_layer_gate", routing, gates=gates_of(routing, 5, 0.01))[1:] == [1.0, 1.0]
    # As many of the true ones as numpy finds among the largest.
    gates = gates_of(routing, 5, 2.0)
    largest = np.argsort(-gates, axis=2)[:, :, :TOP_K]
    right = (routing[0][..., None] == largest[..., None, :]).any(axis=3)[TOKENS // 3 :].mean(axis=(0, 2))
    assert recalls("cross_layer_gate", routing, gates=gates)[1:] == pytest.approx(right[1:].tolist(), abs=1e-9)


def test_the_gate_of_several_tokens_is_what_any_of_them_wants() -> None:
    sizes = np.full((2, 4), 100, np.int64)
    cache = _core.ExpertCache(
        sizes, 800, top_k=1, policy="lru", predictor="cross_layer_gate", over_fetch=4, prefetch_bytes=400
    )
    logits = np.array([[9, 0, 0, 0], [0, 0, 9, 0]], np.float32)
    assert sorted(cache.prefetch(1, gate_logits=logits)["load"]) == [(1, 0), (1, 2)]


def test_lookahead_is_exact() -> None:
    assert recalls("lookahead", random_routing(6, TOKENS, LAYERS, EXPERTS, TOP_K, skew=5.0)) == [1.0] * LAYERS


def test_blend_is_as_good_as_the_best_it_is_made_of() -> None:
    """Where the token decides the first layer and the gate the others, no single predictor sees both."""
    by_token, tokens = by_rule(7)
    by_gate = random_routing(8, TOKENS, LAYERS, EXPERTS, TOP_K, skew=5.0)
    routing = tuple(np.concatenate([a[:, :1], b[:, 1:]], axis=1) for a, b in zip(by_token, by_gate, strict=True))
    gates = gates_of(routing, 7, 1.0)  # type: ignore[arg-type]
    found = {
        name: recalls(name, routing, tokens=tokens, gates=gates)  # type: ignore[arg-type]
        for name in ("token", "cross_layer_gate", "blend")
    }
    assert found["cross_layer_gate"][0] < 0.4
    assert max(found["token"][1:]) < 0.4
    assert found["blend"][0] > 0.98 * found["token"][0] > 0.95
    assert min(found["blend"][1:]) > 0.97 * min(found["cross_layer_gate"][1:]) > 0.9


@pytest.mark.parametrize("predictor", [name for name in REAL if name != "lookahead"])
def test_without_a_cause_nobody_predicts(predictor: str) -> None:
    """The negative control: uniform routing, gates and tokens that have nothing to do with it."""
    print("seed", 9)
    rng = np.random.default_rng(9)
    routing, profile = (random_routing(seed, 6000, LAYERS, EXPERTS, TOP_K, skew=1e6) for seed in (9, 10))
    tokens = rng.integers(0, 40, 6000).astype(np.int32)
    gates = rng.normal(size=(6000, LAYERS, EXPERTS)).astype(np.float32)
    found = recalls(predictor, routing, tokens=tokens, gates=gates, profile=profile)
    # 8000 draws with 1 in 8: six standard deviations are 0.022.
    assert np.abs(np.array(found) - TOP_K / EXPERTS).max() < 0.022, found


def test_predictions_that_never_come_true_are_not_read_for_long() -> None:
    """A gate that is sure and always wrong: what it says is measured, and no longer believed."""
    routing = random_routing(11, 4000, LAYERS, EXPERTS, TOP_K, skew=1e6)
    wrong = (routing[0].astype(np.int64) + 5) % EXPERTS
    gates = np.zeros((4000, LAYERS, EXPERTS), np.float32)
    np.put_along_axis(gates, wrong, 9.0, 2)
    gates[:, 0] = 0
    sizes = np.full((LAYERS, EXPERTS), 100, np.int64)
    cache = _core.ExpertCache(sizes, 1600, top_k=TOP_K, policy="lru", predictor="cross_layer_gate", prefetch_bytes=200)
    cache.simulate(*routing, gate_logits=gates, disk_bytes_per_s=1000, layer_s=1)
    assert sum(layer["prefetch_loads"] for layer in cache.counters) < 0.02 * routing[0].size
