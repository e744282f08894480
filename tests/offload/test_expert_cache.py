"""The cache of experts against a model of it in plain Python, and what must hold whatever is asked of it."""

import numpy as np
import pytest

from edgert import _core

from .routings import Routing, random_routing

LAYERS, EXPERTS, TOP_K = 3, 10, 2
SEEDS = (1, 2, 3)


class Reference:
    """A cache with nothing but the definitions of the policies: what is in it, and all that was routed so far."""

    def __init__(self, policy: str, sizes: np.ndarray, capacity: int, future: Routing, profile: Routing) -> None:
        self.policy, self.sizes, self.capacity = policy, sizes, capacity
        self.future, self.profile = future[0], profile[0]
        self.history: list[list[tuple[list[int], list[float]]]] = [[] for _ in range(LAYERS)]
        self.touched: list[tuple[int, int]] = []  # routed or loaded, the newest last
        self.resident: set[tuple[int, int]] = set()

    def priority(self, layer: int, expert: int) -> float:
        visits = self.history[layer]
        uses = [i for i, (experts, _) in enumerate(visits) if expert in experts]
        if self.policy == "lru":
            return len(self.touched) - self.touched[::-1].index((layer, expert))
        if self.policy == "lfu":
            return sum((1 - 1 / 256) ** (len(visits) - 1 - i) for i in uses)
        if self.policy == "lfru":
            return len(uses) / (len(visits) - 1 - uses[-1] + 1)
        if self.policy == "score":
            return sum((63 / 64) ** (len(visits) - 1 - i) / 64 * visits[i][1][visits[i][0].index(expert)] for i in uses)
        if self.policy == "hotset":
            return float((self.profile[:, layer] == expert).sum())
        coming = np.flatnonzero((self.future[len(visits) :, layer] == expert).any(axis=1))
        return -float((len(visits) + coming[0]) * LAYERS + layer) if len(coming) else -1e18

    def route(self, layer: int, experts: list[int], weights: list[float]) -> tuple[list[str], list[tuple[int, int]]]:
        found = ["hit" if (layer, e) in self.resident else "miss" for e in experts]
        self.history[layer].append((experts, weights))
        self.touched += [(layer, e) for e in experts]
        pinned, evicted = {(layer, e) for e in experts}, []
        for expert, how in zip(experts, found, strict=True):
            if how == "hit":
                continue
            used = sum(self.sizes[one] for one in self.resident)
            while used + self.sizes[layer, expert] > self.capacity:
                victim = min(self.resident - pinned, key=lambda one: (self.priority(*one), one))
                self.resident.remove(victim)
                evicted.append(victim)
                used -= self.sizes[victim]
            self.resident.add((layer, expert))
            self.touched.append((layer, expert))
        return found, evicted


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policy", _core.policy_names())
def test_a_policy_evicts_what_its_definition_says(policy: str, seed: int) -> None:
    print("seed", seed)
    rng = np.random.default_rng(seed)
    routing, profile = (random_routing(seed + i, 150, LAYERS, EXPERTS, TOP_K) for i in (0, 100))
    sizes = rng.integers(1, 5, (LAYERS, EXPERTS)) * 100
    capacity = int(sizes.sum() * rng.uniform(0.3, 0.6))
    cache = _core.ExpertCache(sizes, capacity, top_k=TOP_K, policy=policy, profile=profile, future=routing)
    reference = Reference(policy, sizes, capacity, routing, profile)
    num_evicted = 0
    for token in range(150):
        for layer in range(LAYERS):
            experts, weights = (array[token, layer].tolist() for array in routing)
            done = cache.route(layer, experts, weights)
            found, evicted = reference.route(layer, experts, weights)
            assert done["found"] == found, (token, layer)
            assert done["evict"] == evicted, (token, layer)
            assert done["load"] == [(layer, e) for e, how in zip(experts, found, strict=True) if how == "miss"]
            for loaded in done["load"]:
                cache.arrived(*loaded)
            for expert in experts:
                cache.release(layer, expert)
            num_evicted += len(evicted)
    assert num_evicted > 50
    assert cache.used_bytes == sum(sizes[one] for one in reference.resident)


def simulated_hits(policy: str, routing: Routing, profile: Routing, capacity: int) -> int:
    sizes = np.full((LAYERS, EXPERTS), 100, np.int64)
    cache = _core.ExpertCache(sizes, capacity, top_k=TOP_K, policy=policy, profile=profile, future=routing)
    cache.simulate(*routing, disk_bytes_per_s=100, layer_s=1)
    return sum(layer["hits"] for layer in cache.counters)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("capacity", [300, 600, 1500, 3000])
def test_nothing_beats_belady(seed: int, capacity: int) -> None:
    print("seed", seed)
    routing, profile = (random_routing(seed + i, 400, LAYERS, EXPERTS, TOP_K) for i in (0, 100))
    hits = {policy: simulated_hits(policy, routing, profile, capacity) for policy in _core.policy_names()}
    assert max(hits, key=lambda policy: (hits[policy], policy == "belady")) == "belady", hits
    # All that fits is read once.
    if capacity == 3000:
        used = sum(len(np.unique(routing[0][:, layer])) for layer in range(LAYERS))
        assert set(hits.values()) == {routing[0].size - used}


class Invariants:
    """A cache whose answers are all checked."""

    def __init__(self, rng: np.random.Generator, policy: str) -> None:
        self.sizes = rng.integers(1, 6, (LAYERS, EXPERTS)) * 100
        self.capacity = int(self.sizes.sum() * rng.uniform(0.2, 0.35))
        self.cache = _core.ExpertCache(
            self.sizes,
            self.capacity,
            top_k=TOP_K,
            policy=policy,
            predictor="lookahead",
            prefetch_bytes=int(rng.integers(0, 1500)),
            profile=random_routing(7, 20, LAYERS, EXPERTS, TOP_K),
            future=random_routing(8, 20, LAYERS, EXPERTS, TOP_K),
        )
        self.state = np.full((LAYERS, EXPERTS), "on_disk", dtype=object)
        self.pinned: set[tuple[int, int]] = set()

    def take(self, decision: dict) -> None:
        for one in decision["evict"]:
            assert self.state[one] == "resident" and one not in self.pinned
            self.state[one] = "on_disk"
        for one in decision["cancel"]:
            assert self.state[one] == "in_flight" and one not in self.pinned
        for one in decision["load"]:
            assert self.state[one] == "on_disk"
            self.state[one] = "in_flight"
        self.check()

    def check(self) -> None:
        used = int(self.sizes[self.state != "on_disk"].sum())
        assert used == self.cache.used_bytes <= self.capacity
        seen = [[self.cache.state(layer, e) for e in range(EXPERTS)] for layer in range(LAYERS)]
        assert seen == self.state.tolist()

    def settle(self, one: tuple[int, int], how: str) -> None:
        getattr(self.cache, how)(*one)
        self.state[one] = "resident" if how == "arrived" else "on_disk"
        self.check()

    def in_flight(self) -> list[tuple[int, int]]:
        return [(int(layer), int(e)) for layer, e in np.argwhere(self.state == "in_flight")]


@pytest.mark.parametrize("policy", _core.policy_names())
@pytest.mark.parametrize("seed", SEEDS)
def test_budget_and_pins_hold_whatever_happens(seed: int, policy: str) -> None:
    """Batches that want more than fits, predictions that are wrong, reads that fail, in any order."""
    print("seed", seed)
    rng = np.random.default_rng(seed)
    world = Invariants(rng, policy)
    cache = world.cache
    num_deferred = num_cancelled = 0
    for _ in range(120):
        for layer in range(LAYERS):
            experts = np.sort(rng.choice(EXPERTS, rng.integers(1, EXPERTS + 1), replace=False)).tolist()
            was = [world.state[layer, e] for e in experts]
            done = cache.route(layer, experts, rng.random(len(experts)).tolist())
            names = {"resident": "hit", "in_flight": "late", "on_disk": "miss"}
            assert done["found"] == [names[one] for one in was]
            world.pinned = {(layer, e) for e in experts if world.state[layer, e] != "on_disk"}
            world.take(done)
            for one in done["cancel"]:
                if rng.random() < 0.5:
                    world.settle(one, "cancelled")
                    num_cancelled += 1
            world.pinned |= set(done["load"])
            computed: set[int] = set()
            while True:
                num_deferred += done["num_deferred"]
                guess = rng.choice(EXPERTS, rng.integers(0, 4), replace=False).tolist()
                if done["num_deferred"] == 0:
                    world.take(cache.prefetch((layer + 1) % LAYERS, known_experts=guess))
                for one in rng.permutation(world.in_flight()).tolist():
                    if tuple(one) in world.pinned or rng.random() < 0.5:
                        world.settle(tuple(one), "arrived")
                for one in world.pinned:
                    computed.add(one[1])
                    cache.release(*one)
                world.pinned = set()
                if done["num_deferred"] == 0:
                    break
                for one in world.in_flight():
                    world.settle(one, str(rng.choice(["arrived", "failed"])))
                done = cache.admit()
                world.pinned = set(done["load"])
                assert world.pinned
                world.take(done)
            assert computed == set(experts)
    assert num_deferred > 0
    total = {name: sum(layer[name] for layer in cache.counters) for name in cache.counters[0]}
    assert total["routed"] == total["hits"] + total["late_hits"] + total["misses"]
    assert total["loads"] == total["misses"]
    assert total["cancelled"] == num_cancelled


def cache_of_four(**options: object) -> "_core.ExpertCache":
    """One layer of eight experts of 100 bytes, four of which fit; one a token."""
    sizes = np.full((2, 8), 100, np.int64)
    known = {"top_k": 1, "policy": "lru", "predictor": "lookahead", "prefetch_bytes": 300} | options
    return _core.ExpertCache(sizes, 400, **known)  # type: ignore[arg-type]


def test_a_right_prediction_on_its_way_is_a_late_hit() -> None:
    cache = cache_of_four()
    assert cache.prefetch(1, known_experts=[3])["load"] == [(1, 3)]
    assert cache.route(1, [3], [1.0])["found"] == ["late"]
    assert [cache.counters[1][name] for name in ("late_hits", "loads", "prefetch_loads")] == [1, 0, 1]


def test_a_wrong_prediction_is_cancelled_or_goes_first() -> None:
    cache = cache_of_four()
    for expert in range(2):
        cache.route(0, [expert], [1.0])
        cache.arrived(0, expert)
        cache.release(0, expert)
    assert cache.prefetch(1, known_experts=[3, 4])["load"] == [(1, 3), (1, 4)]
    cache.arrived(1, 3)
    done = cache.route(1, [5], [1.0])
    assert done["cancel"] == [(1, 4)]
    # LRU would take (0, 0); the unused prediction goes before it.
    assert done["evict"] == [(1, 3)]
    cache.cancelled(1, 4)
    assert cache.used_bytes == 300
    counted = {name: cache.counters[1][name] for name in ("cancelled", "wasted", "wasted_bytes", "prefetch_bytes")}
    assert counted == {"cancelled": 1, "wasted": 1, "wasted_bytes": 100, "prefetch_bytes": 200}


def test_what_is_predicted_is_not_evicted_before_its_layer() -> None:
    cache = cache_of_four()
    for expert in range(4):
        cache.route(0, [expert], [1.0])
        cache.arrived(0, expert)
        cache.release(0, expert)
    assert cache.prefetch(0, known_experts=[0]) == {"evict": [], "cancel": [], "load": [], "num_deferred": 0}
    assert cache.route(1, [0], [1.0])["evict"] == [(0, 1)]


def test_predictions_never_fill_the_room_of_a_token() -> None:
    cache = cache_of_four(prefetch_bytes=10_000)
    assert len(cache.prefetch(1, known_experts=[0, 1, 2, 3])["load"]) == 3
    assert cache.route(0, [0], [1.0])["load"] == [(0, 0)]


def test_free_memory_is_filled_with_what_was_needed_most() -> None:
    cache = cache_of_four()
    for expert, times in ((5, 1), (2, 3)):
        for _ in range(times):
            cache.route(1, [expert], [1.0])
            if cache.state(1, expert) == "in_flight":
                cache.failed(1, expert)  # so that what is needed most is on disk
            cache.release(1, expert)
    assert [cache.fill(1)["load"] for _ in range(4)] == [[(1, 2)], [(1, 5)], [(1, 0)], [(1, 1)]]
    assert cache.fill(1) == {"evict": [], "cancel": [], "load": [], "num_deferred": 0}
    assert cache.used_bytes == 400


def test_a_layer_that_is_whole_is_followed_by_the_next() -> None:
    sizes = np.full((3, 2), 100, np.int64)
    cache = _core.ExpertCache(sizes, 500, top_k=1, policy="lfu", predictor="frequency", prefetch_bytes=100)
    assert [cache.fill(2)["load"] for _ in range(6)] == [[(2, 0)], [(2, 1)], [(0, 0)], [(0, 1)], [(1, 0)], []]


def test_memory_that_an_eviction_has_freed_is_not_filled() -> None:
    cache = cache_of_four()
    for expert in range(5):
        cache.route(0, [expert], [1.0])
        cache.arrived(0, expert)
        cache.release(0, expert)
    cache.route(1, [0], [1.0])
    cache.failed(1, 0)
    assert cache.used_bytes == 300
    assert cache.fill(0)["load"] == []


def test_without_prediction_nothing_is_filled() -> None:
    assert cache_of_four(prefetch_bytes=0).fill(0)["load"] == []


def test_a_surer_need_is_not_evicted_for_a_prediction() -> None:
    """An expert that every token wants stays, though its turn in LRU order has come."""
    cache = cache_of_four(victim_share=0.5)
    for _ in range(100):
        for expert in range(4):
            cache.route(0, [expert], [1.0])
            if cache.state(0, expert) == "in_flight":
                cache.arrived(0, expert)
            cache.release(0, expert)
    # Each is wanted by one token in four, which is less than half of what is predicted as sure, and more than a tenth.
    assert cache.prefetch(1, known_experts=[1])["load"] == [(1, 1)]
    strict = cache_of_four(victim_share=0.1)
    for _ in range(100):
        for expert in range(4):
            strict.route(0, [expert], [1.0])
            if strict.state(0, expert) == "in_flight":
                strict.arrived(0, expert)
            strict.release(0, expert)
    assert strict.prefetch(1, known_experts=[1])["load"] == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"capacity": 199}, "capacity_bytes: found 199"),
        ({"top_k": 0}, "top_k: found 0"),
        ({"top_k": 5}, "top_k: found 5"),
        ({"policy": "mru"}, "policy: found 'mru', expected one of lru, lfu"),
        ({"predictor": "oracle"}, "predictor: found 'oracle', expected one of none"),
        ({"policy": "hotset"}, "hotset: found no recorded routing"),
        ({"policy": "belady"}, "belady: found no future"),
        ({"predictor": "table"}, "table: found no recorded routing"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict, message: str) -> None:
    known = {"capacity": 400, "top_k": 2, "policy": "lru", "predictor": "none"} | changes
    capacity = known.pop("capacity")
    with pytest.raises(_core.CoreError, match=message.replace("(", r"\(")):
        _core.ExpertCache(np.full((2, 4), 100, np.int64), capacity, **known)
