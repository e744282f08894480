"""What a model did and when, as a Chrome trace: for chrome://tracing and Perfetto (ui.perfetto.dev)."""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Iterable, Iterator
from typing import IO, Any

from edgert.quant.layout import STRIP_ROWS

Trace = dict[str, Any]
Event = dict[str, Any]

PRIORITIES = ("demand", "planned", "predicted")
KEYS_AND_VALUES = "keys and values"
_LAYER = re.compile(r"model\.layers\.(\d+)\.")
_EXPERT = re.compile(r"(.*\.experts\.\d+)\.")
_PROCESS = 1
_COMPUTE = 0  # the track of thread 0; those of the disk follow


def write_trace(file: IO[str], trace: Trace) -> None:
    """A JSON array of complete events, times in microseconds; `trace` is what `Runtime.stop_trace` returns."""
    file.write("[\n" + ",\n".join(json.dumps(event) for event in trace_events(trace)) + "\n]\n")


def trace_events(trace: Trace) -> Iterator[Event]:
    """Names of the tracks, then what thread 0 did, where it waited for the disk, and every read on a track of its own
    among those that overlap it."""
    begins = [trace[f"{kind}_begin_s"] for kind in ("step", "wait", "read")]
    origin_s = min((float(times.min()) for times in begins if len(times)), default=0.0)
    slots, num_slots = _slots(trace["read_begin_s"], trace["read_end_s"])
    yield _named("process_name", _COMPUTE, "edgert")
    if any(len(times) >= trace["max_events"] for times in begins):
        labels = {"labels": f"cut: a trace has at most {trace['max_events']} events of a kind"}
        yield {"name": "process_labels", "ph": "M", "pid": _PROCESS, "tid": _COMPUTE, "args": labels}
    yield _named("thread_name", _COMPUTE, "compute")
    for slot in range(num_slots):
        yield _named("thread_name", 1 + slot, f"disk {slot}")
    for event in (*_steps(trace), *_waits(trace), *_reads(trace, slots)):
        begin_s, end_s = event.pop("span_s")
        times = {"ts": round((begin_s - origin_s) * 1e6, 3), "dur": round((end_s - begin_s) * 1e6, 3)}
        yield {"ph": "X", "pid": _PROCESS, **event, **times}


def _named(what: str, track: int, name: str) -> Event:
    return {"name": what, "ph": "M", "pid": _PROCESS, "tid": track, "args": {"name": name}}


def _steps(trace: Trace) -> Iterator[Event]:
    steps = list(_described(trace["steps"]))
    phases = ("start of a step", None, "waiting for threads")
    columns = (trace[f"step_{name}"].tolist() for name in ("index", "phase", "begin_s", "end_s"))
    for index, phase, begin_s, end_s in zip(*columns, strict=True):
        name, args = steps[index]
        category = "compute" if phases[phase] is None else "overhead"
        yield {
            "name": phases[phase] or name, "cat": category, "tid": _COMPUTE, "args": args, "span_s": (begin_s, end_s)
        }  # fmt: skip


def _described(steps: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Event]]:
    """Name and arguments of each step of the plan; those without weights belong to the layer that they stand in."""
    layer: int | None = None
    for kind, weight in steps:
        if match := _LAYER.match(weight):
            layer = int(match[1])
        elif weight:
            layer = None
        args: Event = {"kind": kind} | ({} if layer is None else {"layer": layer})
        # Experts are many, and of a step the weight is only the first of them.
        if weight and not kind.startswith("moe"):
            args["weight"] = weight
        yield (f"{kind} {_role(weight)}" if "weight" in args else kind), args


def _waits(trace: Trace) -> Iterator[Event]:
    columns = (trace[f"wait_{name}"].tolist() for name in ("weight", "begin_s", "end_s"))
    for weight, begin_s, end_s in zip(*columns, strict=True):
        args = {"weight": trace["names"][weight]} if weight >= 0 else {}
        yield {
            "name": "waiting for the disk", "cat": "stall", "tid": _COMPUTE, "args": args, "span_s": (begin_s, end_s)
        }  # fmt: skip


def _reads(trace: Trace, slots: list[int]) -> Iterator[Event]:
    names = ("weight", "first_strip", "num_strips", "num_bytes", "priority", "begin_s", "end_s")
    columns = (trace[f"read_{name}"].tolist() for name in names)
    rows = zip(*columns, slots, strict=True)
    for weight, first_strip, num_strips, num_bytes, priority, begin_s, end_s, slot in rows:
        name = trace["names"][weight] if weight >= 0 else KEYS_AND_VALUES
        args: Event = {"weight": name} if weight >= 0 else {}
        if match := _EXPERT.match(name):
            args = {"expert": match[1]}
        elif num_strips:
            args["rows"] = f"{STRIP_ROWS * first_strip} to {STRIP_ROWS * (first_strip + num_strips)}"
        args |= {"bytes": num_bytes, "priority": PRIORITIES[priority]}
        yield {
            "name": _role(match[1] if match else name), "cat": "read", "tid": 1 + slot, "args": args,
            "span_s": (begin_s, end_s),
        }  # fmt: skip


def _role(weight: str) -> str:
    return re.sub(r"^model\.|\.weight$", "", weight)


def _slots(begins: Any, ends: Any) -> tuple[list[int], int]:
    """For each read the first track that is free when it begins, and how many tracks there are."""
    slots = [0] * len(begins)
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    num_slots = 0
    for index in begins.argsort(kind="stable").tolist():
        while busy and busy[0][0] <= begins[index]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            slots[index] = heapq.heappop(free)
        else:
            slots[index], num_slots = num_slots, num_slots + 1
        heapq.heappush(busy, (float(ends[index]), slots[index]))
    return slots, num_slots
