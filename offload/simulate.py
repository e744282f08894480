"""Runs a recorded routing through the cache of experts that the runtime uses, with an imagined clock and disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgert import _core
from edgert.errors import UsageError
from edgert.offload.expert_trace import ExpertTrace

FILL_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The disk's rate, the compute time of a layer with all experts in memory, and of a token outside of layers.

    latency_s: what a read takes beyond its bytes, where it is waited for. before_router: the share of a layer's time
    that has passed when its router has chosen.
    """

    disk_bytes_per_s: float
    layer_s: float
    token_s: float = 0.0
    before_router: float = 0.5
    latency_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """What a policy and a predictor make of a routing.

    hit_rate: experts that were in memory when the router asked; late_rate: those that were on their way. read_bytes:
    all that was read; wasted_bytes: of that, predicted and evicted unused. recall: for each layer, the share of the
    routed experts among the predictor's likeliest top_k; recall_over_fetch: among all that it might have read.
    """

    policy: str
    predictor: str
    capacity_bytes: int
    num_tokens: int
    hit_rate: float
    late_rate: float
    read_bytes: int
    wasted_bytes: int
    recall: tuple[float, ...]
    recall_over_fetch: tuple[float, ...]
    compute_s: float
    stall_s: float
    elapsed_s: float


def default_device(trace: ExpertTrace, layer_s: float) -> Device:
    """One whose disk reads an expert while a layer is computed."""
    return Device(disk_bytes_per_s=float(trace.expert_bytes.mean()) / layer_s, layer_s=layer_s)


def minimum_bytes(trace: ExpertTrace) -> int:
    """The smallest cache: the experts of one layer and token."""
    return int(trace.expert_bytes.max()) * trace.top_k


def prefetch_bytes(trace: ExpertTrace, device: Device) -> int:
    """What may be read ahead at a time: as much as the disk reads while a layer is computed, at least one expert.

    More would stand in the way of what the router wants.
    """
    return max(int(trace.expert_bytes.max()), int(device.disk_bytes_per_s * device.layer_s))


def fills(trace: ExpertTrace, capacity_bytes: int) -> int:
    """Experts that the runtime reads at a time into memory that is free (csrc/weights/expert_stream.cpp)."""
    expert_bytes = int(trace.expert_bytes.max())
    return max(1, min(FILL_BYTES // expert_bytes, (capacity_bytes // expert_bytes + 7) // 8))


def simulate(
    trace: ExpertTrace,
    *,
    policy: str,
    predictor: str,
    capacity_bytes: int,
    device: Device,
    profile: ExpertTrace | None = None,
    options: Mapping[str, float] | None = None,
    num_fills: int = 0,
) -> SimulatedRun:
    """profile: another text's trace, for hotset and table. options: those of `_core.ExpertCache` by name.

    num_fills: so many experts at a time are read by an idle disk into memory that is free, as the runtime does
    (`fills`).

    Raises UsageError for an unknown policy or predictor, one that lacks a profile, or a capacity below the minimum.
    """
    known = {"prefetch_bytes": prefetch_bytes(trace, device)} | dict(options or {})
    try:
        cache = _core.ExpertCache(
            trace.expert_bytes,
            capacity_bytes,
            top_k=trace.top_k,
            policy=policy,
            predictor=predictor,
            profile=None if profile is None else (profile.experts, profile.weights),
            future=(trace.experts, trace.weights) if policy == "belady" else None,
            **known,  # type: ignore[arg-type]
        )
        times = cache.simulate(
            trace.experts,
            trace.weights,
            trace.token_ids,
            None if trace.gate_logits is None else trace.gate_logits.astype(np.float32),
            disk_bytes_per_s=device.disk_bytes_per_s,
            layer_s=device.layer_s,
            token_s=device.token_s,
            before_router=device.before_router,
            latency_s=device.latency_s,
            num_fills=num_fills,
        )
    except _core.CoreError as error:
        raise UsageError(str(error)) from None
    layers = cache.counters
    total = {name: sum(layer[name] for layer in layers) for name in layers[0]}
    return SimulatedRun(
        policy=policy,
        predictor=predictor,
        capacity_bytes=capacity_bytes,
        num_tokens=trace.num_tokens,
        hit_rate=total["hits"] / total["routed"],
        late_rate=total["late_hits"] / total["routed"],
        read_bytes=total["load_bytes"] + total["prefetch_bytes"] - total["cancelled_bytes"],
        wasted_bytes=total["wasted_bytes"],
        recall=tuple(layer["recalled_top_k"] / max(1, layer["predicted_routed"]) for layer in layers),
        recall_over_fetch=tuple(layer["recalled"] / max(1, layer["predicted_routed"]) for layer in layers),
        compute_s=times["compute_s"],
        stall_s=times["stall_s"],
        elapsed_s=times["elapsed_s"],
    )


def halves(trace: ExpertTrace) -> tuple[ExpertTrace, ExpertTrace]:
    """The first half, to fit on, and the second one, to simulate."""
    middle = trace.num_tokens // 2
    return trace.part(0, middle), trace.part(middle, trace.num_tokens)


def usage(trace: ExpertTrace) -> NDArray[np.int64]:
    """How often each expert was chosen, int64 (layers, experts)."""
    counts = [
        np.bincount(trace.experts[:, layer].ravel(), minlength=trace.expert_bytes.shape[1])
        for layer in range(trace.num_layers)
    ]
    return np.stack(counts)
