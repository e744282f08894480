"""Runs a model with its weights in memory and the same with weights that are streamed, and compares every bit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgert import _core
from edgert.device.read_size import DEFAULT_READ_SIZE
from edgert.engine.kv_plan import page_bytes
from edgert.engine.offload_items import top_k, weight_items
from edgert.loader import Model, finish_loading, start_loading
from edgert.offload import Budget, Placement, place
from edgert.offload.pieces import Records
from edgert.offload.placement import fitting_bytes, minimum_bytes
from edgert.quant.layout import STRIP_ROWS

METHODS = ("uring", "threads", "buffered")
CONTEXT = 256
NOTHING_ELSE = Budget(total_bytes=0, base_bytes=0, activation_bytes=0, kv_bytes=0)
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The arguments of WeightStore.set_stream that say what is streamed."""

    cuts: tuple[tuple[str, list[int]], ...] = ()
    lock_order: tuple[tuple[int, int], ...] = ()
    lookups: tuple[str, ...] = ()
    pool_bytes: int = 0
    ring_bytes: int = 0
    experts: tuple[tuple[str, ...], ...] = ()
    expert_bytes: int = 0
    neurons: tuple[str, ...] = ()
    neuron_bytes: int = 0
    neuron_frequency: tuple[Floats, ...] = ()


def limits(model: Model, threads: int = 2) -> tuple[int, int]:
    """Bytes of the smallest budget for weights, and of the one that holds all of them."""
    items = weight_items(model)
    return (
        minimum_bytes(items, NOTHING_ELSE, threads=threads, top_k=top_k(model.graph)),
        fitting_bytes(items, NOTHING_ELSE),
    )


def placed(model: Model, num_bytes: int, threads: int = 2) -> Plan:
    """What placement makes of a budget of so many bytes for weights."""
    budget = replace(NOTHING_ELSE, total_bytes=num_bytes)
    return plan_of(model, place(weight_items(model), budget, threads=threads, top_k=top_k(model.graph)))


def plan_of(model: Model, placement: Placement) -> Plan:
    cuts: dict[str, list[int]] = {}
    places = []
    for piece in placement.pieces:
        strips = cuts.setdefault(piece.weight, [])
        places.append((len(cuts) - 1, len(strips)))
        strips.append(piece.first_row // STRIP_ROWS)
    return Plan(
        cuts=tuple(cuts.items()),
        lock_order=tuple(places[index] for index in placement.lock_order),
        lookups=placement.lookups,
        pool_bytes=placement.pool_bytes,
        ring_bytes=placement.ring_bytes,
        experts=mixtures(model) if placement.expert_cache_bytes else (),
        expert_bytes=placement.expert_cache_bytes,
        neurons=placement.neurons,
        neuron_bytes=placement.neuron_cache_bytes,
    )


def mixtures(model: Model) -> tuple[tuple[str, ...], ...]:
    """Of each mixture of experts gate, up, down of expert 0, of expert 1, ..."""
    return tuple(tuple(node.weights) for node in model.graph.nodes if node.op == "moe")


def random_plan(model: Model, rng: np.random.Generator) -> Plan:
    """Any plan that is allowed: some matrices, cut anywhere, kept in any order, in a pool of any size."""
    cuts, places, total = [], [], 0
    for item in weight_items(model):
        if item.kind != "matrix" or item.role == "router" or rng.random() < 0.2:
            continue
        unit = item.unit_rows // STRIP_ROWS
        num_units = -(-item.rows // item.unit_rows)
        num_cuts = int(rng.integers(0, min(num_units, 12)))
        first = sorted(rng.choice(np.arange(1, num_units), num_cuts, replace=False)) if num_cuts else []
        places += [(len(cuts), piece) for piece in range(num_cuts + 1)]
        cuts.append((item.name, [0, *(int(f) * unit for f in first)]))
        total += max(item.file_bytes, item.resident_bytes) + 16384 * (num_cuts + 1)
    order = [places[i] for i in rng.permutation(len(places))[: rng.integers(0, len(places) + 1)]]
    lookups = tuple(item.name for item in weight_items(model) if item.kind == "lookup" and rng.random() < 0.5)
    pool = int(total * rng.random() * 1.1)
    records = {item.name: item.records for item in weight_items(model) if item.records and rng.random() < 0.8}
    room = sum(r.num_bytes for r in records.values() if r) * rng.random() * 1.1
    is_known = bool(rng.random() < 0.5)
    return Plan(
        cuts=tuple(cuts), lock_order=tuple(order), lookups=lookups, pool_bytes=pool,
        ring_bytes=int(pool * rng.random()), neurons=tuple(records),
        neuron_bytes=neuron_room([r for r in records.values() if r]) + int(room),
        neuron_frequency=tuple(rng.random(r.count, np.float32) for r in records.values() if r and is_known),
    )  # fmt: skip


def neuron_room(records: Sequence[Records]) -> int:
    """The least that the core takes: two windows, and 128 neurons."""
    if not records:
        return 0
    largest = max(r.record_bytes for r in records)
    return 2 * (max(32 << 10, -(-largest // 4096) * 4096) + 4096) + 128 * largest


def open_runtime(
    model: Model,
    plan: Plan | None = None,
    *,
    threads: int = 2,
    batch_tokens: int = CONTEXT,
    round_tokens: int = 0,
    context: int = CONTEXT,
    kv_spill: _core.KVSpill | None = None,
    **stream: Any,
) -> tuple[_core.Runtime, _core.WeightStore]:
    """plan: None, and all weights are in memory. stream: other arguments of set_stream, such as method and faults."""
    store = _core.WeightStore()

    def set_stream(store: _core.WeightStore) -> None:
        assert plan is not None
        store.set_stream(
            cuts=list(plan.cuts),
            lock_order=list(plan.lock_order),
            lookups=list(plan.lookups),
            pool_bytes=plan.pool_bytes,
            ring_bytes=plan.ring_bytes,
            experts=[list(layer) for layer in plan.experts],
            expert_bytes=plan.expert_bytes,
            neurons=list(plan.neurons),
            neuron_bytes=plan.neuron_bytes,
            neuron_frequency=list(plan.neuron_frequency),
            top_k=top_k(model.graph),
            **stream,
        )

    start_loading(
        model,
        store,
        threads=1,
        set_stream=None if plan is None else set_stream,
        direct_reads=DEFAULT_READ_SIZE,
    )
    finish_loading(model, store)
    runtime = _core.Runtime(
        model.graph.compile_args(),
        store,
        isa=_core.best_isa(),
        threads=threads,
        batch_tokens=batch_tokens,
        round_tokens=round_tokens,
        context=context,
        kv_format="f16",
        kv_budget_bytes=page_bytes(model.graph, "f16") * 40,
        kv_spill=kv_spill,
    )
    return runtime, store


def core_span(sequence: int, tokens: Sequence[int], logits: str = "last") -> _core.Span:
    return _core.Span(sequence, np.array(tokens, np.int32), logits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Sequences of random tokens and the logits of every token, from weights that are in memory."""

    tokens: tuple[list[int], ...]
    logits: tuple[Floats, ...]

    def holds(self, sequence: int, first: int, last: int, mode: str, rows: Floats) -> bool:
        """Whether `rows` are what a span of tokens first to last - 1 gives."""
        expected = self.logits[sequence][{"none": last, "last": last - 1, "all": first}[mode] : last]
        return expected.shape == rows.shape and bool((expected == rows).all())


def make_reference(model: Model, lengths: Sequence[int] = (190, 60, 33), *, seed: int = 7) -> Reference:
    rng = np.random.default_rng(seed)
    runtime, _ = open_runtime(model, threads=1)
    tokens = tuple([int(t) for t in rng.integers(0, runtime.vocab_size, n)] for n in lengths)
    logits = tuple(np.array(runtime.step([core_span(runtime.open_sequence(), t, "all")])) for t in tokens)
    return Reference(tokens=tokens, logits=logits)


def play(runtime: _core.Runtime, reference: Reference, rng: np.random.Generator, *, num_decoded: int = 5) -> None:
    """Appends the reference's sequences: a prompt, then random spans of several at once, then token by token.

    Every row of logits must be the reference's, bit by bit.
    """
    sequences = [runtime.open_sequence() for _ in reference.tokens]
    done = [0] * len(sequences)

    def step(lengths: dict[int, int], modes: Sequence[str]) -> None:
        spans, wanted = [], []
        for (s, n), mode in zip(lengths.items(), modes, strict=True):
            spans.append(core_span(sequences[s], reference.tokens[s][done[s] : done[s] + n], mode))
            wanted.append((s, done[s], done[s] + n, mode))
            done[s] += n
        logits = np.array(runtime.step(spans))
        row = 0
        for s, first, last, mode in wanted:
            num_rows = {"none": 0, "last": 1, "all": last - first}[mode]
            assert reference.holds(s, first, last, mode, logits[row : row + num_rows]), (s, first, last, mode)
            row += num_rows
        assert row == len(logits)

    ends = [len(tokens) - num_decoded for tokens in reference.tokens]
    step({0: min(ends[0], runtime.batch_tokens)}, [str(rng.choice(["none", "last", "all"]))])
    while unfinished := [s for s in range(len(sequences)) if done[s] < ends[s]]:
        room, lengths = runtime.batch_tokens, {}
        for s in rng.permutation(unfinished)[: rng.integers(1, 4)]:
            if room:
                n = int(rng.integers(1, min(ends[s] - done[s], room) + 1)) if rng.random() < 0.4 else ends[s] - done[s]
                lengths[int(s)] = min(n, room)
                room -= lengths[int(s)]
        step(lengths, [str(mode) for mode in rng.choice(["none", "last", "all"], len(lengths))])
    for _ in range(num_decoded):
        step(dict.fromkeys(range(len(sequences)), 1), ["last"] * len(sequences))
    for s in sequences:
        runtime.release(s)


def check_method(model: Model, method: str) -> None:
    """Skips the test where this machine refuses a way to read."""
    paths = [str(path) for path in model.checkpoint.real_files]
    try:
        _core.Reader(paths, method=method).close()
    except OSError as error:
        pytest.skip(f"{method}: {error}")


def until(is_true: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    """Waits until it is; False: it never was."""
    end_s = time.perf_counter() + timeout_s
    while not is_true():
        if time.perf_counter() > end_s:
            return False
        time.sleep(0.001)
    return True


def stop_later(runtime: _core.Runtime, span: _core.Span) -> tuple[Exception | None, float]:
    """How a step ends that is stopped after 0.2 s, and how long that takes."""
    ended: list[Exception | None] = []
    end_s = 0.0

    def run() -> None:
        nonlocal end_s
        try:
            runtime.step([span])
            ended.append(None)
        except Exception as error:
            ended.append(error)
        end_s = time.perf_counter()

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.2)
    begin_s = time.perf_counter()
    runtime.stop()
    thread.join(30)
    assert ended, "the step hangs"
    return ended[0], end_s - begin_s


def num_tasks() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())
