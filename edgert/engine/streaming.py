"""What was read from disk while a model ran, and how long it was waited for: differences of the core's totals."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from edgert.loader import Model
from edgert.offload import Placement

Counters = Mapping[str, Any]

_LAYER = re.compile(r"model\.layers\.(\d+)\.")
OUTPUT, EMBEDDING = "output", "embedding"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertStats:
    """Experts that routers asked for: resident (hits), on their way (late), or on disk (misses) at that moment.

    prefetched: reads that a prediction began; wasted: of these, experts that were evicted unused. coarse: experts that
    were computed at miss_bits.
    """

    routed: int
    hits: int
    late: int
    misses: int
    prefetched: int
    wasted: int
    coarse: int
    hit_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NeuronStats:
    """Neurons whose columns were multiplied with (active), those of them that were in memory (hits), and bytes.

    missed_bytes: of the records of the others; requested_bytes: of records that were asked for; sector_bytes: of the
    whole sectors around them. filled_bytes: of records that came into memory which was never used.
    """

    active: int
    hits: int
    missed_bytes: int
    requested_bytes: int
    sector_bytes: int
    filled_bytes: int
    hit_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingStats:
    """What was streamed between two moments. Seconds are wall-clock, means over the threads that compute.

    num_bytes, num_reads: requests to the disk, whole sectors; bytes_per_s: while at least one was under way. hits and
    late: pieces of matrices that were there when they were needed, or were waited for; wasted_bytes: of pieces that
    were given up unused. stall_s: of waiting for the disk; decode_stall_s: after the first generated token;
    stall_s_by_layer: by "0", "1", ..., and "output" and "embedding" (a tied one counts as output).
    """

    num_bytes: int
    num_reads: int
    bytes_per_s: float
    hits: int
    late: int
    wasted_bytes: int
    stall_s: float
    decode_stall_s: float
    stall_s_by_layer: dict[str, float]
    experts: ExpertStats | None
    neurons: NeuronStats | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamMeter:
    """Reads the core's totals of one model and takes their differences.

    planned: names of the matrices that are read in the order of their use; lookups: of those that are read row by row.
    """

    counters: Callable[[], Counters]
    threads: int
    num_layers: int
    planned: frozenset[str]
    lookups: frozenset[str]

    def stats(self, start: Counters, first_token: Counters, end: Counters) -> StreamingStats:
        """What happened from `start` to `end`; `first_token` lies between them."""
        num_bytes, busy_s = end["num_bytes"] - start["num_bytes"], end["busy_s"] - start["busy_s"]
        hits = late = 0
        by_layer = dict.fromkeys([*map(str, range(self.num_layers)), OUTPUT, EMBEDDING], 0.0)
        for name, counts in end["weights"].items():
            num_hits, num_late, waited_s = (b - a for a, b in zip(start["weights"][name], counts, strict=True))
            if name in self.planned:
                hits, late = hits + num_hits, late + num_late
            by_layer[self._place(name)] += waited_s / self.threads
        return StreamingStats(
            num_bytes=num_bytes,
            num_reads=end["num_reads"] - start["num_reads"],
            bytes_per_s=num_bytes / busy_s if busy_s > 0 else 0.0,
            hits=hits,
            late=late,
            wasted_bytes=end["wasted_bytes"] - start["wasted_bytes"],
            stall_s=sum(by_layer.values()),
            decode_stall_s=(_waited_s(end) - _waited_s(first_token)) / self.threads,
            stall_s_by_layer=by_layer,
            experts=_expert_stats(start["experts"], end["experts"]),
            neurons=_neuron_stats(start["neurons"], end["neurons"]),
        )

    def _place(self, name: str) -> str:
        if layer := _LAYER.match(name):
            return layer[1]
        return EMBEDDING if name in self.lookups else OUTPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class KVStats:
    """Keys and values that were read from disk and written there between two moments.

    waited_s: for reads; decode_waited_s: of this, after the first token.
    """

    num_reads: int
    read_bytes: int
    written_bytes: int
    waited_s: float
    decode_waited_s: float


def kv_stats(start: Counters, first_token: Counters, end: Counters) -> KVStats | None:
    """Differences of the core's totals; None where all keys and values stay in memory."""
    if not end:
        return None
    counts = {name: end[name] - start[name] for name in ("num_reads", "read_bytes", "written_bytes", "waited_s")}
    return KVStats(**counts, decode_waited_s=end["waited_s"] - first_token["waited_s"])


def stream_meter(
    model: Model, placement: Placement, counters: Callable[[], Counters], *, threads: int
) -> StreamMeter | None:
    """The meter of a model that runs by this placement; None where nothing is streamed."""
    if placement.fits:
        return None
    layers = [int(match[1]) for name in model.weights if (match := _LAYER.match(name))]
    return StreamMeter(
        counters=counters,
        threads=threads,
        num_layers=max(layers, default=-1) + 1,
        planned=frozenset(piece.weight for piece in placement.pieces),
        lookups=frozenset(placement.lookups),
    )


def _waited_s(counters: Counters) -> float:
    return float(sum(waited_s for _, _, waited_s in counters["weights"].values()))


def _neuron_stats(start: list[dict[str, int]], end: list[dict[str, int]]) -> NeuronStats | None:
    """Sums over the matrices; None where none is read neuron by neuron."""
    if not end:
        return None
    sums = _sums(start, end)
    return NeuronStats(**sums, hit_rate=sums["hits"] / sums["active"] if sums["active"] else 0.0)


def _sums(start: list[dict[str, int]], end: list[dict[str, int]]) -> dict[str, int]:
    return {key: sum(b[key] - a[key] for a, b in zip(start, end, strict=True)) for key in end[0]}


def _expert_stats(start: list[dict[str, int]], end: list[dict[str, int]]) -> ExpertStats | None:
    """Sums over the layers; None without an expert cache."""
    if not end:
        return None
    sums = _sums(start, end)
    return ExpertStats(**sums, hit_rate=sums["hits"] / sums["routed"] if sums["routed"] else 0.0)
