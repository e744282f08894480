"""What a model will do with so much memory, as one value for `edgert fit`: from headers and two measured rates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from edgert.device.bandwidth import measure_bandwidth
from edgert.device.disk import measure_disk
from edgert.device.threads import default_threads
from edgert.engine.cost import token_bytes
from edgert.engine.kv_plan import page_bytes
from edgert.engine.offload_items import budget_context, fit_budget, top_k, weight_items
from edgert.engine.opening import DEFAULT_BATCH_TOKENS, LoadOptions
from edgert.errors import OutOfMemoryError
from edgert.loader import Model, open_model
from edgert.loader.views import MIN_BITS, at_bits, stored_bits
from edgert.offload import Budget, Placement, WeightItem, fitting_bytes, minimum_bytes, place
from edgert.offload.prediction import Candidate, Prediction, advice, predict
from edgert.offload.sizes import as_option

# What decoding reaches of the memory's rate (docs/performance.md).
BANDWIDTH_SHARE = 0.85
# Of the weights, for which other budgets have room.
OTHER_SHARES = (0.25, 0.5, 0.75, 1.0)

# What --json prints; docs/cli.md is made from it. Sizes are in bytes, GB are 10**9; null where it is not known.
KEYS = {
    "path": "the path as given",
    "ram_bytes": "the budget for everything",
    "minimum_bytes": "the smallest budget with which the model runs, with this context",
    "fits_from_bytes": "the smallest budget with which nothing is read while it runs",
    "context": "tokens of prompt and answer",
    "kv_format": "how keys and values are kept",
    "bits": "the width that was asked for with --bits, or null",
    "budget": "total_bytes, base_bytes (the program and the tokenizer, assumed), activation_bytes (at most), kv_bytes",
    "plan": "fits, resident_bytes, scratch_bytes, num_pieces, pool_bytes, ring_bytes, prefill_ring_bytes, "
    "expert_cache_bytes, locked_bytes (of pieces that are kept), streamed_bytes_per_token",
    "token_bytes": "bytes of weights that decoding one token uses",
    "disk": "path, gb_per_s and is_direct, measured on the model's file",
    "threads": "threads that the memory's rate was measured with",
    "bandwidth_gb_per_s": "the memory's rate",
    "prediction": "tokens_per_s, disk_s and compute_s of a token, limit (disk or memory), stall_share",
    "budgets": "list of share (of the weights that have room), ram_bytes, tokens_per_s (null: below the minimum)",
    "widths": "list of bits, minimum_bytes, fits_from_bytes, tokens_per_s with ram_bytes (null: below the minimum)",
    "advice": "one sentence where the disk is the limit, or null",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A model at one width, and what is known of the machine."""

    items: tuple[WeightItem, ...]
    top_k: int
    threads: int
    disk_bytes_per_s: float
    compute_s: float

    def place(self, budget: Budget) -> Placement:
        return place(self.items, budget, threads=self.threads, top_k=self.top_k)

    def minimum_bytes(self, budget: Budget) -> int:
        return minimum_bytes(self.items, budget, threads=self.threads, top_k=self.top_k)

    def predict(self, placement: Placement) -> Prediction:
        return predict(placement, disk_bytes_per_s=self.disk_bytes_per_s, compute_s=self.compute_s)

    def tokens_per_s(self, budget: Budget) -> float | None:
        """None below the minimum."""
        try:
            return self.predict(self.place(budget)).tokens_per_s
        except OutOfMemoryError:
            return None


def fit_plan(path: Path, options: LoadOptions, ram_bytes: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """The values of KEYS. progress(what) says what is being done.

    Raises what open_model raises, OutOfMemoryError below the minimum, DeviceError where the disk cannot be measured.
    """
    model = open_model(path, bits=options.bits)
    kv_page_bytes = page_bytes(model.graph, options.kv_format)
    context = options.context or budget_context(model.context_length, kv_page_bytes, ram_bytes)
    budget = fit_budget(
        model,
        total_bytes=ram_bytes,
        context=context,
        batch_tokens=min(DEFAULT_BATCH_TOKENS, context),
        kv_format=options.kv_format,
    )
    items, threads = weight_items(model), default_threads()
    # Before anything is measured: it may not fit.
    placement = place(items, budget, threads=threads, top_k=top_k(model.graph))
    progress("measuring the disk")
    disk = measure_disk(max(model.checkpoint.real_files, key=lambda file: file.stat().st_size))
    progress("measuring the memory")
    bandwidth = measure_bandwidth(threads)
    usable_bytes_per_s = bandwidth * 1e9 * BANDWIDTH_SHARE
    case = _Case(
        items=items,
        top_k=top_k(model.graph),
        threads=threads,
        disk_bytes_per_s=disk.gb_per_s * 1e9,
        compute_s=token_bytes(model) / usable_bytes_per_s,
    )
    prediction = case.predict(placement)
    fits_from = fitting_bytes(items, budget)
    budgets = []
    for share in OTHER_SHARES:
        room_bytes = math.ceil(share * (fits_from - budget.fixed_bytes))
        other = replace(budget, total_bytes=budget.fixed_bytes + room_bytes)
        row = {"share": share, "ram_bytes": other.total_bytes, "tokens_per_s": case.tokens_per_s(other)}
        budgets.append(row)
    widths = [_width(view, bits, case, budget, usable_bytes_per_s) for bits, view in _narrower(model)]
    return {
        "path": str(path),
        "ram_bytes": ram_bytes,
        "minimum_bytes": case.minimum_bytes(budget),
        "fits_from_bytes": fits_from,
        "context": context,
        "kv_format": options.kv_format,
        "bits": options.bits,
        "budget": asdict(budget),
        "plan": {
            "fits": placement.fits,
            "resident_bytes": placement.resident_bytes,
            "scratch_bytes": placement.scratch_bytes,
            "num_pieces": len(placement.pieces),
            "pool_bytes": placement.pool_bytes,
            "ring_bytes": placement.ring_bytes,
            "prefill_ring_bytes": placement.prefill_ring_bytes,
            "expert_cache_bytes": placement.expert_cache_bytes,
            "locked_bytes": placement.locked_bytes,
            "streamed_bytes_per_token": placement.streamed_bytes_per_token,
        },
        "token_bytes": token_bytes(model),
        "disk": asdict(disk),
        "threads": threads,
        "bandwidth_gb_per_s": bandwidth,
        "prediction": {
            "tokens_per_s": prediction.tokens_per_s,
            "disk_s": prediction.disk_s,
            "compute_s": prediction.compute_s,
            "limit": prediction.limit,
            "stall_share": prediction.stall_share,
        },
        "budgets": budgets,
        "widths": widths,
        "advice": advice(prediction.stall_share, prediction.tokens_per_s, _candidates(ram_bytes, budgets, widths)),
    }


def _narrower(model: Model) -> list[tuple[int, Model]]:
    """The widths below this one that the same file can be read at, the widest first."""
    stored = max((stored_bits(source) or 0 for source in model.weights.values()), default=0)
    return [
        (bits, replace(model, weights=at_bits(model.checkpoint.path, model.weights, bits)))
        for bits in range(stored - 1, MIN_BITS - 1, -1)
    ]


def _width(view: Model, bits: int, case: _Case, budget: Budget, usable_bytes_per_s: float) -> dict[str, Any]:
    narrow = replace(case, items=weight_items(view), compute_s=token_bytes(view) / usable_bytes_per_s)
    return {
        "bits": bits,
        "minimum_bytes": narrow.minimum_bytes(budget),
        "fits_from_bytes": fitting_bytes(narrow.items, budget),
        "tokens_per_s": narrow.tokens_per_s(budget),
    }


def _candidates(ram_bytes: int, budgets: list[dict[str, Any]], widths: list[dict[str, Any]]) -> list[Candidate]:
    """The next budget above this one, and the widest narrower width."""
    more = [row for row in budgets if row["ram_bytes"] > ram_bytes and row["tokens_per_s"] is not None]
    fewer = [row for row in widths if row["tokens_per_s"] is not None]
    return [
        *(Candidate(f"--ram {as_option(row['ram_bytes'])}", row["tokens_per_s"]) for row in more[:1]),
        *(Candidate(f"--bits {row['bits']}", row["tokens_per_s"]) for row in fewer[:1]),
    ]
