"""`edgert fit`: what stays in memory with so much of it, and how fast the model will be."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

import typer

from edgert.cli import options
from edgert.cli.show import lay_out
from edgert.cli.terminal import StatusLine


def fit(
    call: typer.Context,
    path: options.ModelArgument = None,
    model: options.Model = None,
    ram: options.Ram = None,
    kv_ram: options.KVRam = None,
    context: options.Context = None,
    bits: options.Bits = None,
    active_experts: options.ActiveExperts = None,
    min_expert_weight: options.MinExpertWeight = None,
    kv_format: options.KVFormat = "f16",
    as_json: options.Json = False,
) -> None:
    """Predict how a model runs with so much memory: what stays in it, what is read for each token, how fast it is.

    \b
    Examples:
      edgert fit model.gguf
      edgert fit model.gguf --ram 3GiB --context 4096
      edgert fit model.gguf --json

    Only headers are read, and for a second the largest file, to measure the disk. What the program itself takes is
    assumed, not measured.
    """
    opened = options.model_path(options.one_model(call, path, model))
    from edgert.cli.fit_plan import fit_plan
    from edgert.engine.opening import LoadOptions
    from edgert.llm import DEFAULT_MODEL

    doing = ["reading the headers"]
    with StatusLine(lambda: doing[-1]):
        values = fit_plan(
            opened or DEFAULT_MODEL,
            LoadOptions(
                context=context,
                bits=bits,
                active_experts=active_experts,
                min_expert_weight=min_expert_weight,
                kv_format=kv_format,
                ram=ram or "auto",
                kv_ram=kv_ram,
            ),
            doing.append,
        )
    if as_json:
        print(json.dumps(values))
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print("\n".join(lay_out(report(values), width)))


def report(values: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Labels, and the lines that belong to each."""
    from edgert.offload.sizes import format_bytes

    budget, plan = values["budget"], values["plan"]
    rows = [
        ("model", [values["path"]]),
        ("memory", [f"{format_bytes(values['ram_bytes'])} for everything", _limits(values)]),
        ("program", [f"{format_bytes(budget['base_bytes'])}, assumed"]),
        ("activations", [f"{format_bytes(budget['activation_bytes'])} at most"]),
        ("reserve", [f"{format_bytes(budget['reserve_bytes'])}, for what grows while it runs"]),
        ("keys and values", _keys_and_values(values)),
        ("weights", _weights(plan, values["token_bytes"])),
        ("buffers", _buffers(plan)),
        ("disk", [_disk(values["disk"])]),
        ("memory's rate", [f"{values['bandwidth_gb_per_s']:.1f} GB/s, threads: {values['threads']}"]),
        ("prediction", _prediction(values["prediction"])),
        ("other budgets", [_budget(row) for row in values["budgets"]]),
        ("fewer bits", [_width(row) for row in values["widths"]]),
        ("advice", [values["advice"]] if values["advice"] else []),
    ]
    return [(label, lines) for label, lines in rows if lines]


def _keys_and_values(values: dict[str, Any]) -> list[str]:
    from edgert.offload.sizes import format_bytes

    memory_bytes, ring_bytes = values["budget"]["kv_bytes"], values["budget"]["kv_ring_bytes"]
    disk_bytes = values["kv_disk_bytes"]
    lines = [f"{format_bytes(memory_bytes + disk_bytes)}: {values['context']} tokens, {values['kv_format']}"]
    if disk_bytes:
        lines.append(f"{format_bytes(memory_bytes)} in memory, and {format_bytes(ring_bytes)} to read ahead")
        lines.append(f"{format_bytes(disk_bytes)} on disk, read for each token once the context is full")
    return lines


def _limits(values: dict[str, Any]) -> str:
    from edgert.offload.sizes import as_option

    return (
        f"at least --ram {as_option(values['minimum_bytes'])}; from --ram {as_option(values['fits_from_bytes'])} on "
        "nothing is read while it runs"
    )


def _disk(disk: dict[str, Any]) -> str:
    from edgert.offload.sizes import format_bytes

    rate = f"{disk['gb_per_s']:.2f} GB/s in requests of {format_bytes(disk['chunk_bytes'])}, {disk['depth']} at a time"
    return rate + ("" if disk["is_direct"] else ", perhaps from the page cache")


def _weights(plan: dict[str, Any], token_bytes: int) -> list[str]:
    from edgert.offload.placement import ACTIVE_SHARE
    from edgert.offload.sizes import format_bytes

    if plan["fits"]:
        return [f"{format_bytes(plan['resident_bytes'])}: all of them stay in memory"]
    lines = [f"{format_bytes(plan['resident_bytes'])} stay in memory as a whole"]
    if plan["num_pieces"]:
        lines.append(f"{format_bytes(plan['locked_bytes'])} more stay in pieces")
    if plan["expert_cache_bytes"]:
        lines.append(f"{format_bytes(plan['expert_cache_bytes'])} for experts")
    if plan["neuron_cache_bytes"]:
        lines.append(f"{format_bytes(plan['neuron_cache_bytes'])} for neurons")
    share = plan["streamed_bytes_per_token"] / token_bytes if token_bytes else 0
    worst = ", if all experts are equally likely" if plan["expert_cache_bytes"] else ""
    if plan["neuron_cache_bytes"]:
        worst = f", if {100 * ACTIVE_SHARE:.0f} % of the neurons are active, each as often as any other"
    streamed = format_bytes(plan["streamed_bytes_per_token"])
    return [*lines, f"{streamed} are read for each token, {100 * share:.0f} % of what it uses{worst}"]


def _buffers(plan: dict[str, Any]) -> list[str]:
    from edgert.offload.sizes import format_bytes

    if not plan["num_pieces"]:
        return []
    return [
        f"{format_bytes(plan['ring_bytes'])} to read ahead; "
        f"{format_bytes(plan['prefill_ring_bytes'])} while a prompt is read"
    ]


def _prediction(prediction: dict[str, Any]) -> list[str]:
    reading, computing = 1000 * prediction["disk_s"], 1000 * prediction["compute_s"]
    limit = {"disk": "the disk", "memory": "the memory's rate"}[prediction["limit"]]
    return [
        f"{_rate(prediction['tokens_per_s'])}; the limit is {limit}",
        f"a token: {reading:.4g} ms of reading from disk beside {computing:.4g} ms of computing",
    ]


def _budget(row: dict[str, Any]) -> str:
    from edgert.offload.sizes import as_option

    return (
        f"room for {100 * row['share']:.0f} % of the weights, --ram {as_option(row['ram_bytes'])}: "
        f"{_rate(row['tokens_per_s'])}"
    )


def _width(row: dict[str, Any]) -> str:
    from edgert.offload.sizes import as_option

    fits = as_option(row["fits_from_bytes"])
    return f"--bits {row['bits']}: {_rate(row['tokens_per_s'])}; nothing is read from --ram {fits} on; lossy"


def _rate(tokens_per_s: float | None) -> str:
    if tokens_per_s is None:
        return "below the minimum"
    return f"{tokens_per_s:.0f} tokens/s" if tokens_per_s >= 100 else f"{tokens_per_s:.3g} tokens/s"
