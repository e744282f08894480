"""Placement, held against its promises on random models and budgets."""

import re
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from edgert.errors import OutOfMemoryError, UsageError
from edgert.offload import Budget, Piece, Placement, WeightItem, fitting_bytes, minimum_bytes, place
from edgert.offload.pieces import POLICIES, Policy, Records, cut, lock_order

MIB = 1 << 20
ROLES = ("attn_q", "attn_k", "attn_v", "attn_o", "mlp_gate", "mlp_up", "mlp_down")
EXPERT_ROLES = ("expert_gate", "expert_up", "expert_down")


def weight(name: str, role: str, layer: "int | None", rows: int, row_bytes: int, **other: object) -> WeightItem:
    values: dict[str, object] = {
        "file_bytes": rows * row_bytes, "unit_rows": 16, "kind": "matrix", "num_segments": 1,
        "resident_bytes": rows * row_bytes,
    }  # fmt: skip
    return WeightItem(name=name, role=role, layer=layer, rows=rows, **(values | other))  # type: ignore[arg-type]


def vector(name: str, layer: "int | None", rows: int) -> WeightItem:
    return weight(name, "norm", layer, rows, 4, kind="vector")


def dense_model(
    num_layers: int = 8, hidden: int = 512, vocabulary: int = 4096, is_tied: bool = False
) -> list[WeightItem]:
    """A model of the usual shape with 9 bits for each two weights; about 20 MB."""
    row_bytes = hidden * 9 // 16
    items = [] if is_tied else [weight("embed", "embedding", None, vocabulary, row_bytes, kind="lookup", unit_rows=1)]
    for layer in range(num_layers):
        items.append(vector(f"{layer}.norm", layer, hidden))
        for role in ROLES:
            rows, cols = {"mlp_down": (hidden, 4), "mlp_gate": (4 * hidden, 1), "mlp_up": (4 * hidden, 1)}.get(
                role, (hidden, 1)
            )
            items.append(weight(f"{layer}.{role}", role, layer, rows, cols * row_bytes))
    return [*items, weight("head", "output", None, vocabulary, row_bytes, is_logits=True)]


def budget(weights_bytes: int, fixed_bytes: int = 0) -> Budget:
    return Budget(total_bytes=weights_bytes + fixed_bytes, base_bytes=fixed_bytes, activation_bytes=0, kv_bytes=0)


@st.composite
def matrices(draw: st.DrawFn, name: str, role: str, layer: "int | None", **other: object) -> WeightItem:
    rows, row_bytes = draw(st.integers(1, 3000)), draw(st.integers(1, 3000))
    slack = draw(st.sampled_from((0, 64, 5000, rows * row_bytes // 4)))
    return weight(
        name, role, layer, rows, row_bytes,
        unit_rows=draw(st.sampled_from((1, 16, 16, 48, 256))),
        num_segments=draw(st.integers(1, 7)),
        resident_bytes=rows * row_bytes + slack,
        **other,
    )  # fmt: skip


@st.composite
def by_neuron(draw: st.DrawFn, name: str, layer: int) -> WeightItem:
    rows, count = 16 * draw(st.integers(1, 300)), draw(st.integers(1, 5000))
    records = Records(count=count, record_bytes=rows // 2, beside_bytes=draw(st.integers(0, 10_000)))
    num_bytes = records.num_bytes + records.beside_bytes
    return weight(
        name, "mlp_down", layer, rows, 0, kind="neurons", file_bytes=num_bytes, resident_bytes=num_bytes,
        records=records,
    )  # fmt: skip


@st.composite
def models(draw: st.DrawFn, *, has_experts: "bool | None" = None) -> "tuple[list[WeightItem], int]":
    """Weights in the order of use, and top_k."""
    items = [draw(matrices("embed", "embedding", None, kind="lookup"))] if draw(st.booleans()) else []
    num_experts = draw(st.sampled_from((0, 0, 2, 5))) if has_experts is None else 4 * has_experts
    has_neurons = has_experts is None and draw(st.booleans())
    for layer in range(draw(st.integers(0, 5))):
        items.append(vector(f"{layer}.norm", layer, draw(st.integers(1, 5000))))
        items += [draw(matrices(f"{layer}.{role}", role, layer)) for role in draw(st.sets(st.sampled_from(ROLES)))]
        if has_neurons:
            items.append(draw(by_neuron(f"{layer}.neurons", layer)))
        if num_experts:
            items.append(draw(matrices(f"{layer}.router", "router", layer)))
            items += [
                draw(matrices(f"{layer}.{expert}.{role}", role, layer, kind="expert"))
                for expert in range(num_experts)
                for role in EXPERT_ROLES
            ]
    if draw(st.booleans()):
        items.append(draw(matrices("head", "output", None, is_logits=True)))
    return items, draw(st.integers(1, num_experts)) if num_experts else 0


# A machine that is busy is no error.
patiently = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
threads = st.sampled_from((1, 2, 16))
policies = st.sampled_from(POLICIES)
# Between the minimum and what holds everything, and a little more.
shares = st.floats(0, 1.1)


def room_at(items: list[WeightItem], top_k: int, threads: int, share: float) -> int:
    """A room for weights that is enough."""
    least = minimum_bytes(items, budget(0), threads=threads, top_k=top_k)
    return least + int(share * (fitting_bytes(items, budget(0)) - least))


def locked(placement: Placement, ring_bytes: int) -> set[int]:
    """What a store keeps that takes pieces in the lock order as long as they fit."""
    kept, left = set(), placement.pool_bytes - ring_bytes
    for index in placement.lock_order:
        left -= placement.pieces[index].memory_bytes
        if left < 0:
            break
        kept.add(index)
    return kept


@patiently
@given(models(), threads, policies, shares)
def test_a_placement_keeps_the_budget_and_covers_every_weight_once(
    model: "tuple[list[WeightItem], int]", threads: int, policy: Policy, share: float
) -> None:
    items, top_k = model
    room = room_at(items, top_k, threads, share)
    found = place(items, budget(room, fixed_bytes=12345), threads=threads, top_k=top_k, policy=policy)
    by_name = {item.name: item for item in items}
    beside = [records.beside_bytes for name in found.neurons if (records := by_name[name].records) is not None]
    assert len(beside) == len(found.neurons)
    assert bool(beside) == bool(found.neuron_cache_bytes)
    assert sum(by_name[name].resident_bytes for name in found.resident) + sum(beside) == found.resident_bytes
    caches = found.expert_cache_bytes + found.neuron_cache_bytes
    assert found.resident_bytes + found.scratch_bytes + found.pool_bytes + caches <= room
    assert found.memory_bytes <= room
    assert 0 <= found.ring_bytes <= found.prefill_ring_bytes <= found.pool_bytes

    covered = [*found.resident, *found.lookups, *found.neurons]
    rows: dict[str, list[Piece]] = defaultdict(list)
    for piece in found.pieces:
        rows[piece.weight].append(piece)
    assert list(rows) == [item.name for item in items if item.name in rows]  # in the order of use
    for name, pieces in rows.items():
        assert [piece.first_row for piece in pieces] == [0, *(p.first_row + p.num_rows for p in pieces[:-1])]
        assert sum(piece.num_rows for piece in pieces) == by_name[name].rows
        assert sum(piece.file_bytes for piece in pieces) == by_name[name].file_bytes
        assert all(piece.first_row % by_name[name].unit_rows == 0 and piece.num_rows > 0 for piece in pieces)
        covered.append(name)
    in_cache = [item.name for item in items if item.kind == "expert" and item.name not in found.resident]
    assert sorted(covered + in_cache) == sorted(by_name)
    assert bool(in_cache) == bool(found.expert_cache_bytes)
    assert all(by_name[name].kind == "lookup" for name in found.lookups)
    assert all(by_name[name].kind == "matrix" for name in rows)
    if policy != "none":
        assert sorted(found.lock_order) == list(range(len(found.pieces)))

    kept = locked(found, found.ring_bytes)
    assert sum(found.pieces[index].file_bytes for index in kept) == found.locked_bytes
    dense = sum(piece.file_bytes for piece in found.pieces) - found.locked_bytes
    assert found.streamed_bytes_per_token >= dense
    if not in_cache and not found.neurons:
        assert found.streamed_bytes_per_token == dense


@patiently
@given(models(), threads, shares)
def test_everything_stays_from_the_sum_of_the_weights_on(
    model: "tuple[list[WeightItem], int]", threads: int, share: float
) -> None:
    items, top_k = model
    everything = sum(item.resident_bytes for item in items)
    assert fitting_bytes(items, budget(0, 77)) == everything + 77
    found = place(items, budget(everything), threads=threads, top_k=top_k)
    assert (found.fits, found.pieces, found.lookups, found.streamed_bytes_per_token) == (True, (), (), 0)
    assert found.resident == tuple(item.name for item in items)
    room = room_at(items, top_k, threads, share)
    assert place(items, budget(room), threads=threads, top_k=top_k).fits == (room >= everything)


@patiently
@given(models(), threads, policies, st.integers(0, 1 << 40))
def test_the_minimum_is_exact(
    model: "tuple[list[WeightItem], int]", threads: int, policy: Policy, fixed_bytes: int
) -> None:
    items, top_k = model
    least = minimum_bytes(items, budget(0, fixed_bytes), threads=threads, top_k=top_k)
    enough = replace(budget(0, fixed_bytes), total_bytes=least)
    place(items, enough, threads=threads, top_k=top_k, policy=policy)
    with pytest.raises(OutOfMemoryError) as caught:
        place(items, replace(enough, total_bytes=least - 1), threads=threads, top_k=top_k, policy=policy)
    stated = re.search(r"expected at least (\d+) MiB for this model: ", str(caught.value))
    assert stated is not None
    assert least <= int(stated[1]) * MIB < least + MIB


@patiently
@given(models(), threads, policies, shares, shares)
def test_more_memory_never_reads_more(
    model: "tuple[list[WeightItem], int]", threads: int, policy: Policy, one: float, other: float
) -> None:
    items, top_k = model
    rooms = sorted((room_at(items, top_k, threads, one), room_at(items, top_k, threads, other)))
    less, more = (
        place(items, budget(room), threads=threads, top_k=top_k, policy=policy).streamed_bytes_per_token
        for room in rooms
    )
    assert more <= less


@patiently
@given(models(has_experts=False), st.integers(1 << 14, 1 << 20))
def test_every_prefix_is_balanced_within_one_piece(model: "tuple[list[WeightItem], int]", piece_bytes: int) -> None:
    items = [item for item in model[0] if item.kind == "matrix"]
    pieces = [piece for item in items for piece in cut(item, piece_bytes)]
    order = lock_order(items, pieces, "balanced")
    assert sorted(order) == list(range(len(pieces)))
    assume(items)
    names = {item.name: str(item.layer) if item.layer is not None else item.name for item in items}
    total: dict[str, int] = defaultdict(int)
    for piece in pieces:
        total[names[piece.weight]] += piece.file_bytes
    one_piece = max(Fraction(piece.file_bytes, total[names[piece.weight]]) for piece in pieces)
    done = dict.fromkeys(total, 0)
    attention = {item.name for item in items if item.role.startswith("attn_")}
    for group in total:
        is_attention = [pieces[i].weight in attention for i in order if names[pieces[i].weight] == group]
        assert is_attention == sorted(is_attention, reverse=True)
    for index in order:
        done[names[pieces[index].weight]] += pieces[index].file_bytes
        kept = [Fraction(done[name], total[name]) for name in total]
        assert max(kept) - min(kept) <= one_piece


@patiently
@given(models(), threads, shares)
def test_while_a_prompt_is_read_a_layer_stays(
    model: "tuple[list[WeightItem], int]", threads: int, share: float
) -> None:
    items, top_k = model
    found = place(items, budget(room_at(items, top_k, threads, share)), threads=threads, top_k=top_k)
    assume(found.pieces)
    layers = {item.name: item.layer for item in items}
    kept = locked(found, found.prefill_ring_bytes)
    streamed: dict[int, int] = defaultdict(int)
    for index, piece in enumerate(found.pieces):
        layer = layers[piece.weight]
        if index not in kept and layer is not None:
            streamed[layer] += piece.memory_bytes
    most = max(streamed.values(), default=0)
    if found.prefill_ring_bytes < found.pool_bytes:
        assert most + found.ring_bytes == found.prefill_ring_bytes
    # What stays as a whole would have stayed as pieces too; nothing else is in the arena.
    assert all(piece.memory_bytes >= piece.file_bytes for piece in found.pieces)


@patiently
@given(matrices("w", "mlp_up", 0), st.integers(1, 1 << 23))
def test_pieces_are_about_as_large_as_asked(item: WeightItem, piece_bytes: int) -> None:
    pieces = cut(item, piece_bytes)
    unit_bytes = Fraction(item.file_bytes * item.unit_rows, item.rows)
    for piece in pieces:
        assert piece.file_bytes <= max(piece_bytes, unit_bytes) + unit_bytes
        segment_bytes = -(-piece.file_bytes // item.num_segments)
        windows = item.num_segments * (-(-segment_bytes // 4096) * 4096 + 4096)
        assert windows <= piece.memory_bytes
        assert Fraction(item.resident_bytes * piece.num_rows, item.rows) <= piece.memory_bytes
    sizes = [-(-piece.num_rows // item.unit_rows) for piece in pieces]
    assert max(sizes) - min(sizes) <= 1
    assert all(one.first_row + one.num_rows == next_.first_row for one, next_ in pairwise(pieces))


def test_a_model_at_half_its_size() -> None:
    items = dense_model()
    everything = fitting_bytes(items, budget(0))
    found = place(items, budget(everything // 2), threads=2)
    assert found.lookups == ("embed",)
    assert {f"{layer}.norm" for layer in range(8)} <= set(found.resident)
    # Attention stays wholly before the MLPs do.
    whole = set(found.resident)
    assert {f"{layer}.attn_q" for layer in range(8)} <= whole
    matrices = [item for item in items if item.kind == "matrix"]
    streamed: dict[str, int] = defaultdict(int)
    kept = locked(found, found.ring_bytes)
    for index, piece in enumerate(found.pieces):
        if index not in kept:
            streamed[piece.weight.partition(".")[0]] += piece.file_bytes
    largest = max(piece.file_bytes for piece in found.pieces)
    in_layers = [streamed[str(layer)] for layer in range(8)]
    assert max(in_layers) - min(in_layers) <= largest
    # The output matrix streams the same share as a layer.
    layer_bytes = sum(item.file_bytes for item in matrices if item.layer == 0)
    head_bytes = items[-1].file_bytes
    assert streamed["head"] / head_bytes == pytest.approx(in_layers[0] / layer_bytes, abs=2 * largest / head_bytes)


def test_balanced_is_fairer_than_first_and_both_read_less_than_none() -> None:
    items = dense_model(is_tied=True)
    everything = fitting_bytes(items, budget(0))
    for share in (0.25, 0.5, 0.75):
        found = {p: place(items, budget(round(everything * share)), threads=2, policy=p) for p in POLICIES}
        total = sum(item.file_bytes for item in items if item.kind == "matrix")
        assert found["none"].streamed_bytes_per_token == total
        assert found["none"].lock_order == ()
        layers = {}
        for policy in ("balanced", "first"):
            placement = found[policy]
            kept = locked(placement, placement.ring_bytes)
            streamed = dict.fromkeys(range(8), 0)
            for index, piece in enumerate(placement.pieces):
                if index not in kept and piece.weight != "head":
                    streamed[int(piece.weight.partition(".")[0])] += piece.file_bytes
            layers[policy] = list(streamed.values())
            assert placement.streamed_bytes_per_token < total
        assert max(layers["balanced"]) < max(layers["first"])
        assert layers["first"] == sorted(layers["first"])  # the first layers are those that stay
    with pytest.raises(UsageError, match=r"policy: found 'best', expected one of balanced, first, none"):
        place(items, budget(everything), policy="best")  # type: ignore[arg-type]


def test_experts_get_what_is_left() -> None:
    items = dense_model(num_layers=2, vocabulary=512)[:-1]
    dense = sum(item.resident_bytes for item in items if item.kind != "lookup")
    items += [
        weight(f"{layer}.{expert}.{role}", role, layer, 1024, 1024, kind="expert")
        for layer in range(2)
        for expert in range(8)
        for role in EXPERT_ROLES
    ]
    with_half = place(items, budget(dense + 28 * MIB), threads=2, top_k=2)
    assert with_half.pieces == ()
    assert with_half.resident_bytes == dense
    assert with_half.expert_cache_bytes == 28 * MIB - with_half.scratch_bytes
    # Of 2 x 8 x 3 MiB a token uses 2 x 2 x 3; where all are equally likely a cache misses the share that it lacks.
    cached = with_half.expert_cache_bytes / (48 * (MIB + 8192))
    assert with_half.streamed_bytes_per_token == pytest.approx(12 * MIB * (1 - cached), rel=1e-6)
    # Room for the experts of one token in one layer, twice; what is short is taken from the dense matrices.
    tight = place(items, budget(dense + 11 * MIB), threads=2, top_k=2)
    assert tight.expert_cache_bytes == 2 * 2 * 3 * (MIB + 8192)
    assert tight.pieces
    assert not tight.fits


def test_a_router_stays() -> None:
    items = [weight("0.router", "router", 0, 64, 4096), *dense_model()]
    assert "0.router" in place(items, budget(fitting_bytes(items, budget(0)) // 4), threads=1).resident


def test_the_ring_and_the_pieces_follow_the_model() -> None:
    row_bytes = 4096 * 9 // 16
    large = [
        weight(f"{layer}.{role}", role, layer, 4096 if "attn" in role else 14336, row_bytes)
        for layer in range(32)
        for role in ROLES
    ]
    for num_threads, piece_mib in ((1, 4), (6, 4), (16, 1.5)):
        found = place(large, budget(1 << 30), threads=num_threads)
        sizes = [piece.file_bytes for piece in found.pieces]
        assert max(sizes) <= piece_mib * MIB
        assert sum(sizes) / len(sizes) > piece_mib * MIB / 2
        assert 48 * MIB <= found.ring_bytes < 49 * MIB
        assert found.ring_bytes >= 2 * num_threads * max(piece.memory_bytes for piece in found.pieces)
    small = dense_model(num_layers=4, hidden=128, vocabulary=256)
    weights_bytes = fitting_bytes(small, budget(0))
    assert weights_bytes < 700_000
    found = place(small, budget(round(0.9 * weights_bytes)), threads=2)
    assert found.ring_bytes < weights_bytes / 2
    asked = place(large, budget(1 << 30), threads=2, ring_bytes=100 * MIB, piece_bytes=MIB)
    assert asked.ring_bytes == 100 * MIB
    assert max(piece.file_bytes for piece in asked.pieces) <= MIB


def test_below_the_minimum_the_error_says_what_takes_it() -> None:
    found = Budget(total_bytes=200 * MIB, base_bytes=150 * MIB, activation_bytes=40 * MIB, kv_bytes=30 * MIB)
    with pytest.raises(OutOfMemoryError) as caught:
        place(dense_model(), found, threads=2)
    text = str(caught.value)
    assert text.startswith("--ram: found 200 MiB, expected at least 22")
    assert "150 MiB for the program, 40 MiB for activations, 30 MiB for keys and values, " in text
    assert text.endswith("; give it more, a smaller context, or a smaller model")
