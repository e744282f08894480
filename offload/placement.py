"""Which weights stay in memory under a budget, and which are read from disk while the model runs: a pure function.

A matrix that does not stay is cut into pieces of whole rows. The pieces share a pool: those at the front of the lock
order are kept once they were read, the others pass through a ring, in the order of use, token after token.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgert.errors import OutOfMemoryError, UsageError

from .pieces import (
    POLICIES,
    SECTOR_BYTES,
    SEGMENT_SLACK_BYTES,
    Piece,
    Policy,
    Records,
    WeightItem,
    cut,
    lock_order,
    piece_of,
)

MIB = 1 << 20
MAX_PIECE_BYTES = 4 * MIB
# A layer has about so many pieces, or the shares of the layers could not be made equal.
PIECES_A_LAYER = 16
MAX_RING_BYTES = 48 * MIB
# Of all that may be streamed; so a small model has a small ring.
RING_SHARE = 1 / 8
# What is computed with, what is there for next, and what is being read.
MIN_RING_PIECES = 4
# Of a lookup, that may be on their way at once.
LOOKUP_UNITS = 16
# Records of neurons are read through windows of so many bytes, which take at most a share of the memory for records
# (csrc/weights/neuron_stream.cpp).
NEURON_READ_BYTES = 32 << 10
MIN_WINDOWS, MAX_WINDOWS = 2, 16
WINDOW_SHARE = 1 / 8
# Neurons of one matrix that have room at least: a share of them, and no fewer than two groups.
NEURON_ROOM_SHARE = 1 / 4
MIN_NEURONS = 128
# Neurons that a token activates, where nothing is known of them: what a trained model with squared ReLU had.
ACTIVE_SHARE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Bytes of memory in all, and those that are spent before the weights.

    base: interpreter, libraries, tokenizer. kv: keys and values in memory; kv_ring: what others are read into. reserve:
    what the caller sets aside. idle: of activations and of keys and values, what one token at the begin of its context
    does not need; it holds weights until it is needed.
    """

    total_bytes: int
    base_bytes: int
    activation_bytes: int
    kv_bytes: int
    reserve_bytes: int = 0
    kv_ring_bytes: int = 0
    idle_bytes: int = 0

    @property
    def fixed_bytes(self) -> int:
        return self.base_bytes + self.activation_bytes + self.kv_bytes + self.kv_ring_bytes + self.reserve_bytes

    @property
    def weights_bytes(self) -> int:
        """What is left for weights and their buffers; negative where the rest alone is too much."""
        return self.total_bytes - self.fixed_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where every weight goes.

    resident: weights that are loaded once. lookups: those of which single rows are read. pieces: of all other
    matrices, in the order of use. lock_order: indices of pieces; those at its front that fit into pool_bytes -
    ring_bytes are kept, while a prompt is read those that fit into pool_bytes - prefill_ring_bytes: then the pieces of
    a layer stay until all tokens have used them. Experts share expert_cache_bytes. neurons: matrices of which a token
    reads the columns of its active neurons, in the order of use; what is kept of them shares neuron_cache_bytes.

    locked_bytes, streamed_bytes_per_token: file bytes of the pieces that are kept, and of what every token reads, while
    the context is short: idle memory of the budget holds pieces, or experts, too. Of experts those that
    are missed where all are equally likely, the worst case for a cache; of neurons the same, where ACTIVE_SHARE of them
    are active. fits: nothing is read twice.
    """

    resident: tuple[str, ...]
    lookups: tuple[str, ...]
    neurons: tuple[str, ...]
    pieces: tuple[Piece, ...]
    lock_order: tuple[int, ...]
    pool_bytes: int
    ring_bytes: int
    prefill_ring_bytes: int
    expert_cache_bytes: int
    neuron_cache_bytes: int
    resident_bytes: int
    scratch_bytes: int
    locked_bytes: int
    streamed_bytes_per_token: int
    fits: bool

    @property
    def memory_bytes(self) -> int:
        """All that it takes of the budget's weights_bytes."""
        caches_bytes = self.expert_cache_bytes + self.neuron_cache_bytes
        return self.resident_bytes + self.scratch_bytes + self.pool_bytes + caches_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Needs:
    """Bytes that each way of placing takes, from the most comfortable on."""

    everything: int
    all_but_lookups: int
    all_dense: int  # and room for experts
    all_matrices: int  # and room for neurons
    streaming: int

    @property
    def least(self) -> int:
        return min(self.everything, self.all_but_lookups, self.all_dense, self.all_matrices, self.streaming)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The weights by what may become of them, and the buffers that they need."""

    fixed: tuple[WeightItem, ...]
    matrices: tuple[WeightItem, ...]
    experts: tuple[WeightItem, ...]
    lookups: tuple[WeightItem, ...]
    neurons: tuple[WeightItem, ...]
    pieces: tuple[Piece, ...]
    min_ring_bytes: int
    ring_bytes: int
    scratch_bytes: int
    expert_room_bytes: int
    neuron_room_bytes: int
    top_k: int

    @property
    def records(self) -> tuple[Records, ...]:
        return tuple(item.records for item in self.neurons if item.records is not None)

    @property
    def beside_bytes(self) -> int:
        """What stays in memory of matrices whose neurons do not."""
        return sum(records.beside_bytes for records in self.records)


def place(
    items: Sequence[WeightItem],
    budget: Budget,
    *,
    threads: int = 1,
    top_k: int = 0,
    ring_bytes: int | None = None,
    piece_bytes: int | None = None,
    policy: Policy = "balanced",
) -> Placement:
    """The placement of weights, which are given in the order of their use.

    threads: that compute. top_k: experts that a token uses in a layer, where there are any. ring_bytes, piece_bytes:
    about so large; None: as it fits the model. policy: how pieces are kept; "first" and "none" are there to be compared
    with.

    Raises OutOfMemoryError, which states `minimum_bytes`, and UsageError for an unknown policy.
    """
    if policy not in POLICIES:
        raise UsageError(f"policy: found {policy!r}, expected one of {', '.join(POLICIES)}")
    parts = _parts(items, threads, top_k, ring_bytes, piece_bytes)
    needs = _needs(parts)
    room = budget.weights_bytes
    if room >= needs.everything:
        return _whole(parts, items, room)
    if room >= needs.all_but_lookups:
        return _whole(parts, [item for item in items if item.kind != "lookup"], room)
    if room >= needs.all_dense:
        return _whole(parts, [*parts.fixed, *parts.matrices, *parts.neurons], room, budget.idle_bytes)
    if room >= needs.all_matrices:
        return _whole(parts, [*parts.fixed, *parts.matrices], room, budget.idle_bytes)
    if room >= needs.streaming:
        return _streamed(parts, room, budget.idle_bytes, policy)
    raise OutOfMemoryError(_too_small(budget, needs.least))


def minimum_bytes(
    items: Sequence[WeightItem],
    budget: Budget,
    *,
    threads: int = 1,
    top_k: int = 0,
    ring_bytes: int | None = None,
    piece_bytes: int | None = None,
) -> int:
    """The smallest total_bytes with which `place` succeeds, the rest of the budget being as given."""
    return budget.fixed_bytes + _needs(_parts(items, threads, top_k, ring_bytes, piece_bytes)).least


def fitting_bytes(items: Iterable[WeightItem], budget: Budget) -> int:
    """The smallest total_bytes with which everything stays in memory."""
    return budget.fixed_bytes + _resident_bytes(items)


def _parts(
    items: Sequence[WeightItem], threads: int, top_k: int, ring_bytes: int | None, piece_bytes: int | None
) -> _Parts:
    # A router is small, and what is read next waits for it.
    matrices = tuple(item for item in items if item.kind == "matrix" and item.role != "router")
    experts = tuple(item for item in items if item.kind == "expert")
    lookups = tuple(item for item in items if item.kind == "lookup")
    neurons = tuple(item for item in items if item.kind == "neurons")
    assert top_k > 0 or not experts, "top_k is needed where there are experts"
    num_in_ring = max(MIN_RING_PIECES, 2 * threads)
    size = _piece_bytes(matrices, num_in_ring) if piece_bytes is None else piece_bytes
    pieces = tuple(piece for item in matrices for piece in cut(item, size))
    if ring_bytes is None:
        ring_bytes = min(MAX_RING_BYTES, round(RING_SHARE * sum(piece.memory_bytes for piece in pieces)))
    min_ring_bytes = num_in_ring * max((piece.memory_bytes for piece in pieces), default=0)
    return _Parts(
        fixed=tuple(item for item in items if item.kind == "vector" or item.role == "router"),
        matrices=matrices,
        experts=experts,
        lookups=lookups,
        neurons=neurons,
        pieces=pieces,
        min_ring_bytes=min_ring_bytes,
        ring_bytes=max(min_ring_bytes, ring_bytes),
        scratch_bytes=sum(
            LOOKUP_UNITS * piece_of(item, 0, min(item.rows, item.unit_rows)).memory_bytes for item in lookups
        ),
        # The experts of one token in one layer: those that are computed with, and those that are read meanwhile.
        expert_room_bytes=2 * _most_used_expert_bytes(experts, top_k),
        neuron_room_bytes=_neuron_room_bytes([item.records for item in neurons if item.records is not None]),
        top_k=top_k,
    )


def _neuron_room_bytes(records: Sequence[Records]) -> int:
    """The least memory for neurons: those of one matrix that are about to be used, and windows to read them into."""
    if not records:
        return 0
    most, largest = max(r.count for r in records), max(r.record_bytes for r in records)
    used_bytes = largest * min(most, max(MIN_NEURONS, round(NEURON_ROOM_SHARE * most)))
    window_bytes = _window_bytes(records)
    return max(MIN_WINDOWS * window_bytes + used_bytes, round(used_bytes / (1 - WINDOW_SHARE))) + window_bytes


def _window_bytes(records: Sequence[Records]) -> int:
    largest = max(NEURON_READ_BYTES, *(r.record_bytes for r in records))
    return -(-largest // SECTOR_BYTES) * SECTOR_BYTES + SECTOR_BYTES


def _neuron_share(parts: _Parts, room: int) -> int:
    """Of memory for all that is not there as a whole: neurons get the share that their bytes have."""
    records = parts.records
    if not records:
        return 0
    all_bytes = sum(r.num_bytes for r in records)
    most = max(r.record_bytes for r in records) * sum(r.count for r in records) + MAX_WINDOWS * _window_bytes(records)
    share = all_bytes / (all_bytes + sum(item.file_bytes for item in parts.matrices))
    return min(most, max(parts.neuron_room_bytes, int(share * room)))


def _piece_bytes(matrices: Sequence[WeightItem], num_in_ring: int) -> int:
    """File bytes of a piece: small enough for many in a layer and in the ring, but not mostly slack."""
    layers: dict[int | None, int] = defaultdict(int)
    for item in matrices:
        layers[item.layer] += item.file_bytes if item.layer is not None else 0
    slack_bytes = max((item.num_segments * SEGMENT_SLACK_BYTES for item in matrices), default=0)
    largest = max(layers.values(), default=0)
    return min(MAX_PIECE_BYTES, MAX_RING_BYTES // num_in_ring, max(slack_bytes, largest // PIECES_A_LAYER))


def _most_used_expert_bytes(experts: Sequence[WeightItem], top_k: int) -> int:
    """Memory of the experts that a token uses in a layer, in the layer where it is most."""
    largest: dict[int | None, dict[str, int]] = defaultdict(dict)
    for item in experts:
        roles = largest[item.layer]
        roles[item.role] = max(roles.get(item.role, 0), piece_of(item, 0, item.rows).memory_bytes)
    return top_k * max((sum(roles.values()) for roles in largest.values()), default=0)


def _needs(parts: _Parts) -> _Needs:
    fixed = _resident_bytes(parts.fixed)
    matrices, experts = _resident_bytes(parts.matrices), _resident_bytes(parts.experts)
    neurons = _resident_bytes(parts.neurons)
    room = parts.expert_room_bytes + parts.scratch_bytes
    few_neurons = parts.beside_bytes + parts.neuron_room_bytes
    return _Needs(
        everything=fixed + matrices + neurons + experts + _resident_bytes(parts.lookups),
        all_but_lookups=fixed + matrices + neurons + experts + parts.scratch_bytes,
        all_dense=fixed + matrices + neurons + room,
        all_matrices=fixed + matrices + few_neurons + room,
        streaming=fixed + parts.min_ring_bytes + few_neurons + room,
    )


def _whole(parts: _Parts, resident: Sequence[WeightItem], room: int, idle_bytes: int = 0) -> Placement:
    """Without pieces: these weights stay; experts or neurons that are not among them get what is left.

    Experts have what is idle besides.
    """
    names = {item.name for item in resident}
    lookups = [item for item in parts.lookups if item.name not in names]
    scratch_bytes = parts.scratch_bytes if lookups else 0
    has_cache = any(item.name not in names for item in parts.experts)
    has_neurons = any(item.name not in names for item in parts.neurons)
    resident_bytes = _resident_bytes(resident) + (parts.beside_bytes if has_neurons else 0)
    left_bytes = room - resident_bytes - scratch_bytes
    neuron_bytes = parts.neuron_room_bytes if has_neurons else 0
    if has_neurons and not has_cache:
        neuron_bytes = left_bytes
    cache_bytes = left_bytes - neuron_bytes if has_cache else 0
    missed_bytes = _missed_bytes(parts, cache_bytes + idle_bytes) if has_cache else 0
    return Placement(
        resident=tuple(item.name for item in resident),
        lookups=tuple(item.name for item in lookups),
        neurons=tuple(item.name for item in parts.neurons) if has_neurons else (),
        pieces=(),
        lock_order=(),
        pool_bytes=0,
        ring_bytes=0,
        prefill_ring_bytes=0,
        expert_cache_bytes=cache_bytes,
        neuron_cache_bytes=neuron_bytes,
        resident_bytes=resident_bytes,
        scratch_bytes=scratch_bytes,
        locked_bytes=0,
        streamed_bytes_per_token=missed_bytes + (_missed_neurons_bytes(parts, neuron_bytes) if has_neurons else 0),
        fits=not has_cache and not has_neurons and not lookups,
    )


def _streamed(parts: _Parts, room: int, idle_bytes: int, policy: Policy) -> Placement:
    """With pieces: the pool is smaller than all of them, or the matrices would have fitted as a whole."""
    pool_bytes = room - _resident_bytes(parts.fixed) - parts.expert_room_bytes - parts.scratch_bytes
    pool_bytes -= parts.beside_bytes
    neuron_bytes = min(_neuron_share(parts, pool_bytes), pool_bytes - parts.min_ring_bytes)
    pool_bytes -= neuron_bytes
    ring_bytes = min(parts.ring_bytes, pool_bytes)
    layers = {item.name: item.layer for item in parts.matrices}
    order = lock_order(parts.matrices, parts.pieces, policy)
    num_kept, _ = _prefill_ring(parts.pieces, order, layers, pool_bytes, ring_bytes)
    kept = set(order[:num_kept])
    streamed_names = {piece.weight for index, piece in enumerate(parts.pieces) if index not in kept}
    # A matrix that is never streamed, not while a prompt is read either, lies in the arena: it takes no more there than
    # its pieces would, so that the others lose nothing.
    whole = [item for item in parts.matrices if item.name not in streamed_names]
    pool_bytes -= _resident_bytes(whole)
    pieces = tuple(piece for piece in parts.pieces if piece.weight in streamed_names)
    remaining = [index for index, piece in enumerate(parts.pieces) if piece.weight in streamed_names]
    new_index = {old: new for new, old in enumerate(remaining)}
    order = tuple(new_index[index] for index in order if index in new_index)
    # What is idle holds pieces; where all fit, nothing passes through a ring.
    locked_bytes, left_bytes = 0, pool_bytes + idle_bytes
    if len(order) < len(pieces) or sum(piece.memory_bytes for piece in pieces) > left_bytes:
        left_bytes -= ring_bytes
    for index in order:
        left_bytes -= pieces[index].memory_bytes
        if left_bytes < 0:
            break
        locked_bytes += pieces[index].file_bytes
    resident = [*parts.fixed, *whole]
    return Placement(
        resident=tuple(item.name for item in resident),
        lookups=tuple(item.name for item in parts.lookups),
        neurons=tuple(item.name for item in parts.neurons),
        pieces=pieces,
        lock_order=order,
        pool_bytes=pool_bytes,
        ring_bytes=ring_bytes,
        prefill_ring_bytes=_prefill_ring(pieces, order, layers, pool_bytes, ring_bytes)[1],
        expert_cache_bytes=parts.expert_room_bytes,
        neuron_cache_bytes=neuron_bytes,
        resident_bytes=_resident_bytes(resident) + parts.beside_bytes,
        scratch_bytes=parts.scratch_bytes,
        locked_bytes=locked_bytes,
        streamed_bytes_per_token=sum(piece.file_bytes for piece in pieces)
        - locked_bytes
        + _missed_bytes(parts, parts.expert_room_bytes)
        + _missed_neurons_bytes(parts, neuron_bytes),
        fits=False,
    )


def _prefill_ring(
    pieces: Sequence[Piece], order: Sequence[int], layers: dict[str, int | None], pool_bytes: int, ring_bytes: int
) -> tuple[int, int]:
    """(pieces that stay kept, bytes of the ring) while a prompt is read.

    The ring holds all that one layer streams, so that it is read once for all tokens, and ring_bytes to read ahead.
    Pieces are given up from the end of the order until that fits the pool; where nothing is left to give up, the ring
    is the pool. Logits are asked of few tokens, so what lies outside of the layers need not stay.
    """
    streamed: dict[int | None, int] = defaultdict(int)
    kept = set(order)
    for index, piece in enumerate(pieces):
        if index not in kept and layers[piece.weight] is not None:
            streamed[layers[piece.weight]] += piece.memory_bytes
    kept_bytes = sum(pieces[index].memory_bytes for index in order)
    most_streamed = max(streamed.values(), default=0)
    for num_kept in range(len(order), -1, -1):
        if kept_bytes + most_streamed + ring_bytes <= pool_bytes:
            return num_kept, most_streamed + ring_bytes
        if num_kept:
            piece = pieces[order[num_kept - 1]]
            kept_bytes -= piece.memory_bytes
            layer = layers[piece.weight]
            if layer is not None:
                streamed[layer] += piece.memory_bytes
                most_streamed = max(most_streamed, streamed[layer])
    return 0, pool_bytes


def _missed_bytes(parts: _Parts, cache_bytes: int) -> int:
    """File bytes of experts that a token reads if every expert is as likely as any other; no cache does better."""
    num_experts: dict[tuple[int | None, str], int] = defaultdict(int)
    for item in parts.experts:
        num_experts[item.layer, item.role] += 1
    used = sum(item.file_bytes * min(1.0, parts.top_k / num_experts[item.layer, item.role]) for item in parts.experts)
    memory_bytes = sum(piece_of(item, 0, item.rows).memory_bytes for item in parts.experts)
    return round(used * max(0.0, 1 - cache_bytes / memory_bytes)) if memory_bytes else 0


def _missed_neurons_bytes(parts: _Parts, cache_bytes: int) -> int:
    """File bytes of the active neurons that a token reads, if each is active as often as any other."""
    all_bytes = sum(records.num_bytes for records in parts.records)
    return round(ACTIVE_SHARE * all_bytes * max(0.0, 1 - cache_bytes / all_bytes)) if all_bytes else 0


def _resident_bytes(items: Iterable[WeightItem]) -> int:
    return sum(item.resident_bytes for item in items)


def _too_small(budget: Budget, least: int) -> str:
    spent = [
        ("the program", budget.base_bytes),
        ("activations", budget.activation_bytes),
        ("keys and values", budget.kv_bytes + budget.kv_ring_bytes),
        ("a reserve", budget.reserve_bytes),
        ("weights and buffers to read into", least),
    ]
    listed = ", ".join(f"{-(-num_bytes // MIB)} MiB for {what}" for what, num_bytes in spent if num_bytes)
    minimum = -(-(budget.fixed_bytes + least) // MIB)
    return (
        f"--ram: found {budget.total_bytes // MIB} MiB, expected at least {minimum} MiB for this model: {listed}; "
        "give it more, a smaller context, or a smaller model"
    )
