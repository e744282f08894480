"""What --stats tells of streaming: against sums by hand, and against what a real run must have read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import edgert
from edgert.engine.output import Timings
from edgert.engine.streaming import ExpertStats, NeuronStats, StreamMeter
from edgert.llm import LLM

from .streamed_models import LAYERS, TOP_K, open_with_least, write_mixture

Open = Callable[..., LLM]


@pytest.fixture
def open_streamed(monkeypatch: pytest.MonkeyPatch) -> Open:
    return partial(open_with_least, monkeypatch)


def counters(scale: int, **changes: Any) -> dict[str, Any]:
    expert = {"routed": 8, "hits": 5, "late": 2, "misses": 1, "prefetched": 4, "wasted": 3, "coarse": 1}
    neuron = {
        "active": 20, "hits": 15, "missed_bytes": 500, "requested_bytes": 500, "sector_bytes": 8192,
        "filled_bytes": 300,
    }  # fmt: skip
    return {
        "num_reads": 10 * scale,
        "num_bytes": 4096 * scale,
        "busy_s": 0.5 * scale,
        "wasted_bytes": 100 * scale,
        "locked_bytes": 7,
        "weights": {
            "model.layers.0.mlp.up_proj.weight": (3 * scale, scale, 0.2 * scale),
            "model.layers.1.mlp.experts.5.up_proj.weight": (0, 50 * scale, 1.0 * scale),
            "model.layers.11.mlp.up_proj.weight": (2 * scale, 2 * scale, 0.4 * scale),
            "lm_head.weight": (scale, 0, 0.6 * scale),
            "model.embed_tokens.weight": (0, 9 * scale, 0.8 * scale),
        },
        "experts": [{key: value * scale * (layer + 1) for key, value in expert.items()} for layer in range(2)],
        "neurons": [{key: value * scale * (layer + 1) for key, value in neuron.items()} for layer in range(2)],
    } | changes


def test_differences_by_layer() -> None:
    meter = StreamMeter(
        counters=dict,
        threads=2,
        num_layers=12,
        planned=frozenset(
            {"model.layers.0.mlp.up_proj.weight", "model.layers.11.mlp.up_proj.weight", "lm_head.weight"}
        ),
        lookups=frozenset({"model.embed_tokens.weight"}),
    )
    stats = meter.stats(counters(1), counters(2), counters(4))
    assert (stats.num_bytes, stats.num_reads, stats.wasted_bytes) == (3 * 4096, 30, 300)
    assert stats.bytes_per_s == 3 * 4096 / 1.5
    assert (stats.hits, stats.late) == (3 * 6, 3 * 3)
    waits = {name: seconds for name, seconds in stats.stall_s_by_layer.items() if seconds}
    assert waits == pytest.approx({"0": 0.3, "1": 1.5, "11": 0.6, "output": 0.9, "embedding": 1.2})
    assert list(stats.stall_s_by_layer) == [*map(str, range(12)), "output", "embedding"]
    assert stats.stall_s == pytest.approx(4.5)
    assert stats.decode_stall_s == pytest.approx(3.0)
    assert stats.experts == ExpertStats(
        routed=72, hits=45, late=18, misses=9, prefetched=36, wasted=27, coarse=9, hit_rate=45 / 72
    )
    assert stats.neurons == NeuronStats(
        active=180,
        hits=135,
        missed_bytes=4500,
        requested_bytes=4500,
        sector_bytes=9 * 8192,
        filled_bytes=2700,
        hit_rate=0.75,
    )
    still = counters(1, experts=[], neurons=[])
    nothing = meter.stats(still, still, still)
    assert nothing.neurons is None
    assert (nothing.bytes_per_s, nothing.stall_s, nothing.experts) == (0, 0, None)


def test_every_piece_of_every_pass_was_there_or_late(open_streamed: Open) -> None:
    with open_streamed() as llm:
        assert llm.memory is not None
        placement = llm.memory.placement
        assert placement.pieces
        timings = llm.generate([1, 2, 3], max_tokens=6, temperature=0, ignore_eos=True).timings
        again = llm.generate([1, 2, 3], max_tokens=2, temperature=0, ignore_eos=True).timings
    stats, second = timings.streaming, again.streaming
    assert stats is not None
    assert second is not None
    # The prompt is one pass, and so is every token but the last.
    assert stats.hits + stats.late == 6 * len(placement.pieces)
    assert second.hits + second.late == 2 * len(placement.pieces)
    # What is streamed is read in each pass, whole sectors, and little else; the last pass begins to read the next.
    least = 5 * placement.streamed_bytes_per_token
    most = 7 * sum(piece.memory_bytes + 4096 for piece in placement.pieces)
    assert least <= stats.num_bytes <= most
    assert stats.num_bytes / stats.num_reads <= 4 << 20
    assert 0 <= stats.decode_stall_s <= stats.stall_s
    assert stats.decode_stall_s <= timings.decode_s
    assert stats.stall_s <= timings.prompt_s + timings.decode_s
    assert math.fsum(stats.stall_s_by_layer.values()) == pytest.approx(stats.stall_s)
    assert json.loads(json.dumps(asdict(timings)))["streaming"]["hits"] == stats.hits


def test_a_limit_is_waited_for(open_streamed: Open) -> None:
    with open_streamed(disk_limit="30MB/s") as llm:
        timings = llm.generate([1, 2, 3], max_tokens=6, temperature=0, ignore_eos=True).timings
        stats = timings.streaming
        assert stats is not None
        # A twentieth of a second may be read at once.
        assert stats.num_bytes < 30e6 * (timings.prompt_s + timings.decode_s + 0.2)
        assert stats.late > 0
        assert stats.stall_s > 0.5 * (timings.prompt_s + timings.decode_s)
        sentence = llm.advice(timings)
    assert sentence is not None
    assert "% of the time waiting for the disk: --ram " in sentence


def test_experts_are_counted(open_streamed: Open, tmp_path: Path) -> None:
    with open_streamed(write_mixture(tmp_path / "mixture", seed=1)) as llm:
        stats = llm.generate([1], max_tokens=5, temperature=0, ignore_eos=True).timings.streaming
    assert stats is not None
    assert stats.experts is not None
    # Each of five passes routes one token in every layer.
    assert stats.experts.routed == 5 * LAYERS * TOP_K
    assert stats.experts.hits + stats.experts.late + stats.experts.misses == stats.experts.routed
    assert stats.experts.hit_rate == stats.experts.hits / stats.experts.routed


def test_nothing_is_said_of_what_fits() -> None:
    for ram in (None, "8GiB"):
        with edgert.load(threads=1, context=64, ram=ram) as llm:
            timings = llm.generate([1, 2], max_tokens=2).timings
            assert timings.streaming is None
            assert llm.advice(timings) is None


def test_the_memory_is_given_back(open_streamed: Open) -> None:
    llm = open_streamed()
    meter = llm._opened.meter
    assert meter is not None
    assert meter.counters()
    llm.close()
    assert meter.counters() == {}


def test_waiting_little_is_no_reason_for_advice(open_streamed: Open) -> None:
    with open_streamed() as llm:
        timings = llm.generate([1], max_tokens=3, temperature=0, ignore_eos=True).timings
        assert timings.streaming is not None
        stats = with_stall(timings, decode_stall_s=0.1 * timings.decode_s)
        assert llm.advice(stats) is None
        mostly = with_stall(timings, decode_stall_s=0.9 * timings.decode_s)
        sentence = llm.advice(mostly)
    assert sentence is not None
    assert sentence.startswith("90 % of the time waiting for the disk: ")


def test_keys_and_values_are_waited_for_too(open_streamed: Open) -> None:
    with open_streamed() as llm:
        timings = llm.generate([1] * 200, max_tokens=20, temperature=0, ignore_eos=True).timings
        assert timings.kv is not None, "the least budget has them on disk"
        assert timings.kv.read_bytes > 0
        assert 0 <= timings.kv.decode_waited_s <= timings.kv.waited_s
        assert timings.kv.decode_waited_s <= timings.decode_s
        kv = replace(timings.kv, decode_waited_s=0.6 * timings.decode_s)
        sentence = llm.advice(replace(with_stall(timings, decode_stall_s=0.1 * timings.decode_s), kv=kv))
        assert sentence is not None
        assert sentence.startswith("70 % of the time waiting for the disk: ")
        sentence = llm.advice(replace(timings, streaming=None, kv=kv))
        assert sentence is not None
        assert sentence.startswith("60 % of the time waiting for the disk: ")


def with_stall(timings: Timings, *, decode_stall_s: float) -> Timings:
    """The same timings with another time of waiting."""
    assert timings.streaming is not None
    return replace(timings, streaming=replace(timings.streaming, decode_stall_s=decode_stall_s))
