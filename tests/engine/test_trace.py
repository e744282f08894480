"""A Chrome trace of a run: what it must contain, times that fit together, and a bound."""

from __future__ import annotations

import io
import itertools
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgert
from edgert.engine.trace import trace_events, write_trace

from .streamed_models import LAYERS, open_with_least, write_mixture

MICROSECOND = 1.0


def traced(llm: edgert.LLM, num_tokens: int) -> tuple[list[dict[str, Any]], float]:
    """The events of one answer, and the seconds that it took."""
    file = io.StringIO()
    llm.start_trace()
    started_s = time.perf_counter()
    llm.generate([1, 2, 3], max_tokens=num_tokens, temperature=0, ignore_eos=True)
    elapsed_s = time.perf_counter() - started_s
    llm.write_trace(file)
    events = json.loads(file.getvalue())
    assert isinstance(events, list)
    return events, elapsed_s


def tracks(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert event["ts"] >= 0
            found[names[event["tid"]]].append(event)
    return found


def test_compute_and_reads_on_one_time_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_with_least(monkeypatch, disk_limit="40MB/s") as llm:
        assert llm.memory is not None
        streamed = {piece.weight for piece in llm.memory.placement.pieces}
        events, elapsed_s = traced(llm, 4)
    found = tracks(events)
    compute = found.pop("compute")
    reads = [event for slots in found.values() for event in slots]
    assert sorted(found) == sorted(f"disk {slot}" for slot in range(len(found)))
    # Thread 0 does one thing after the other; what it waits for the disk lies inside of a step, and is most of it.
    work = sorted((event for event in compute if event["cat"] != "stall"), key=lambda event: event["ts"])
    stalls = [event for event in compute if event["cat"] == "stall"]
    for one, other in itertools.pairwise(work):
        assert one["ts"] + one["dur"] <= other["ts"] + MICROSECOND
    for stall in stalls:
        assert any(
            event["ts"] - MICROSECOND <= stall["ts"]
            and stall["ts"] + stall["dur"] <= event["ts"] + event["dur"] + MICROSECOND
            for event in work
        )
    busy_us = sum(event["dur"] for event in work)
    assert 0.5 * elapsed_s < busy_us / 1e6 < elapsed_s
    assert 0.3 * busy_us < sum(event["dur"] for event in stalls) <= busy_us
    # Every matrix is multiplied with four times, and read before that.
    multiplied = [event["args"] for event in compute if event["name"].startswith("linear ")]
    assert len(multiplied) == 4 * len({args["weight"] for args in multiplied})
    assert {args["weight"] for args in multiplied} >= streamed
    assert {args["layer"] for args in multiplied if "layer" in args} == set(range(3))
    assert {event["args"]["weight"] for event in reads} == streamed
    assert {event["args"]["weight"] for event in stalls} <= streamed
    assert {event["args"]["priority"] for event in reads} <= {"demand", "planned"}
    assert sum(event["args"]["bytes"] for event in reads) < 1.2 * 40e6 * (elapsed_s + 0.2)
    for slots in found.values():
        slots.sort(key=lambda event: event["ts"])
        for one, other in itertools.pairwise(slots):
            assert one["ts"] + one["dur"] <= other["ts"] + 0.002
    begin, end = (edge(event["ts"] for event in work) for edge in (min, max))
    assert sum(begin < event["ts"] < end for event in reads) > len(reads) / 2


def test_experts_and_rows_have_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with open_with_least(monkeypatch, write_mixture(tmp_path / "mixture", seed=2)) as llm:
        events, _ = traced(llm, 3)
    reads = [event for name, slots in tracks(events).items() if name != "compute" for event in slots]
    experts = {event["args"]["expert"] for event in reads if "expert" in event["args"]}
    assert {name.rsplit(".", 1)[0] for name in experts} == {f"model.layers.{i}.mlp.experts" for i in range(LAYERS)}
    assert any(event["args"].get("weight") == "model.embed_tokens.weight" for event in reads)
    kinds = {event["args"].get("kind") for event in tracks(events)["compute"]}
    assert {"moe_route", "moe_gate_up", "moe_down", "moe_combine", "attention", "embed"} <= kinds


def test_a_trace_of_what_fits_has_no_reads_and_changes_no_token() -> None:
    with edgert.load(threads=2, context=64) as llm:
        plain = llm.generate([1, 2, 3], max_tokens=4, temperature=0, ignore_eos=True).tokens
        llm.start_trace()
        assert llm.generate([1, 2, 3], max_tokens=4, temperature=0, ignore_eos=True).tokens == plain
        file = io.StringIO()
        llm.write_trace(file)
        assert list(tracks(json.loads(file.getvalue()))) == ["compute"]
        again = io.StringIO()
        llm.generate([1], max_tokens=2)
        llm.write_trace(again)
    assert tracks(json.loads(again.getvalue())) == {}, "what was not asked for is not kept"


def test_tracks_are_taken_again_and_a_cut_is_said() -> None:
    nothing = np.zeros(0)
    trace = {
        "steps": [("embed", "model.embed_tokens.weight")], "names": ["lm_head.weight"], "max_events": 3,
        "step_index": np.array([0, 0]), "step_phase": np.array([0, 1]),
        "step_begin_s": np.array([10.0, 10.5]), "step_end_s": np.array([10.5, 12.0]),
        "wait_weight": nothing, "wait_begin_s": nothing, "wait_end_s": nothing,
        "read_weight": np.array([0, 0, 0]), "read_first_strip": np.array([0, 2, 4]),
        "read_num_strips": np.array([2, 2, 1]), "read_num_bytes": np.array([4096, 8192, 4096]),
        "read_priority": np.array([1, 1, 0]),
        # As they ended: the last began first.
        "read_begin_s": np.array([10.0, 11.0, 9.0]), "read_end_s": np.array([10.75, 11.5, 11.25]),
    }  # fmt: skip
    events = list(trace_events(trace))
    assert {"labels": "cut: a trace has at most 3 events of a kind"} in [event.get("args") for event in events]
    shown = [(e["name"], e["tid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert shown == [
        ("start of a step", 0, 1e6, 5e5),
        ("embed embed_tokens", 0, 1.5e6, 1.5e6),
        ("lm_head", 2, 1e6, 7.5e5),
        ("lm_head", 2, 2e6, 5e5),
        ("lm_head", 1, 0, 2.25e6),
    ]
    assert [e["args"]["rows"] for e in events if e.get("cat") == "read"] == ["0 to 32", "32 to 64", "64 to 80"]
    file = io.StringIO()
    write_trace(file, trace | {"max_events": 4})
    assert "cut" not in file.getvalue()
    assert len(json.loads(file.getvalue())) == len(events) - 1
