"""What a model will do with so much memory, as one value for `edgert fit`: from headers and two measured rates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from edgert.device.bandwidth import measure_bandwidth
from edgert.device.disk import measure_disk
from edgert.device.memory import available_bytes
from edgert.device.read_size import disks_file, keep_choice
from edgert.device.threads import default_threads
from edgert.engine.cost import token_bytes
from edgert.engine.memory_plan import MemoryPlanner
from edgert.engine.offload_items import base_bytes
from edgert.engine.opening import LoadOptions, budget_bytes
from edgert.engine.outlook import Outlook
from edgert.loader import open_model
from edgert.offload.prediction import advice

# What decoding reaches of the memory's rate (docs/performance.md).
BANDWIDTH_SHARE = 0.85

# What --json prints; docs/cli.md is made from it. Sizes are in bytes, GB are 10**9; null where it is not known.
KEYS = {
    "path": "the path as given",
    "ram_bytes": "the budget for everything",
    "minimum_bytes": "the smallest budget with which the model runs, with this context",
    "fits_from_bytes": "the smallest budget with which nothing is read while it runs",
    "context": "tokens of prompt and answer",
    "kv_format": "how keys and values are kept",
    "bits": "the width that was asked for with --bits, or null",
    "lossy": "what was asked for that changes answers: bits, active_experts, min_expert_weight",
    "budget": "total_bytes, base_bytes (the program and the tokenizer, assumed), activation_bytes (at most), kv_bytes, "
    "reserve_bytes, kv_ring_bytes (what keys and values on disk are read into)",
    "kv_disk_bytes": "keys and values on disk with the context full; each token reads them",
    "round_tokens": "tokens that are computed at a time",
    "plan": "fits, resident_bytes, scratch_bytes, num_pieces, pool_bytes, ring_bytes, prefill_ring_bytes, "
    "expert_cache_bytes, neuron_cache_bytes, locked_bytes (of pieces that are kept), streamed_bytes_per_token",
    "token_bytes": "bytes of weights that decoding one token uses",
    "disk": "path, gb_per_s and is_direct, measured on the model's largest file; chunk_bytes and depth of the requests "
    "that are chosen, is_chosen (false: the file is too small to choose, these are the default)",
    "threads": "threads that the memory's rate was measured with",
    "bandwidth_gb_per_s": "the memory's rate",
    "prediction": "tokens_per_s, disk_s and compute_s of a token, limit (disk or memory), stall_share",
    "budgets": "list of share (of the weights that have room), ram_bytes, tokens_per_s (null: below the minimum)",
    "widths": "list of bits, minimum_bytes, fits_from_bytes, tokens_per_s with ram_bytes (null: below the minimum)",
    "advice": "one sentence where the disk is the limit, or null",
}


def fit_plan(path: Path, options: LoadOptions, progress: Callable[[str], None]) -> dict[str, Any]:
    """The values of KEYS. options: with `ram`. progress(what) says what is being done.

    Raises what open_model raises, OutOfMemoryError below the minimum, DeviceError where the disk cannot be measured.
    """
    model = open_model(
        path,
        bits=options.bits,
        active_experts=options.active_experts,
        min_expert_weight=options.min_expert_weight,
    )
    threads = default_threads()
    ram_bytes = budget_bytes(model, options, available_bytes())
    assert ram_bytes is not None, "options have a budget"
    planner = MemoryPlanner(
        model=model,
        base_bytes=base_bytes(model.checkpoint),
        threads=threads,
        context=options.context,
        batch_tokens=options.batch_tokens,
        kv_format=options.kv_format,
        kv_ram=options.kv_ram_bytes(),
    )
    # Before anything is measured: it may not fit.
    plan = planner.plan(ram_bytes)
    progress("measuring the disk")
    disk = measure_disk(model.largest_file)
    keep_choice(disks_file(), disk)
    progress("measuring the memory")
    bandwidth = measure_bandwidth(threads)
    outlook = Outlook(
        planner=replace(planner, context=plan.context, can_spill=options.context is not None),
        disk_bytes_per_s=disk.gb_per_s * 1e9,
        compute_s=token_bytes(model) / (bandwidth * 1e9 * BANDWIDTH_SHARE),
    )
    placement, prediction = plan.placement, outlook.predict(plan)
    candidates = outlook.candidates(ram_bytes, prediction.tokens_per_s)
    return {
        "path": str(path),
        "ram_bytes": ram_bytes,
        "minimum_bytes": outlook.planner.minimum_bytes(),
        "fits_from_bytes": outlook.planner.fitting_bytes(),
        "context": plan.context,
        "kv_format": options.kv_format,
        "bits": options.bits,
        "lossy": options.lossy(),
        "budget": asdict(plan.budget),
        "kv_disk_bytes": plan.kv.disk_bytes,
        "round_tokens": plan.round_tokens,
        "plan": {
            "fits": placement.fits,
            "resident_bytes": placement.resident_bytes,
            "scratch_bytes": placement.scratch_bytes,
            "num_pieces": len(placement.pieces),
            "pool_bytes": placement.pool_bytes,
            "ring_bytes": placement.ring_bytes,
            "prefill_ring_bytes": placement.prefill_ring_bytes,
            "expert_cache_bytes": placement.expert_cache_bytes,
            "neuron_cache_bytes": placement.neuron_cache_bytes,
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
        "budgets": [
            {"share": share, "ram_bytes": total, "tokens_per_s": outlook.tokens_per_s(total)}
            for share, total in outlook.budgets()
        ],
        "widths": [_width(bits, narrow, ram_bytes) for bits, narrow in outlook.narrower()],
        "advice": advice(prediction.stall_share, prediction.tokens_per_s, candidates),
    }


def _width(bits: int, narrow: Outlook, ram_bytes: int) -> dict[str, Any]:
    return {
        "bits": bits,
        "minimum_bytes": narrow.planner.minimum_bytes(),
        "fits_from_bytes": narrow.planner.fitting_bytes(),
        "tokens_per_s": narrow.tokens_per_s(ram_bytes),
    }
