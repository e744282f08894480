"""`edgert moe`: what the routers of a mixture-of-experts model choose, and how a cache of experts would fare."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgert.cli import options, text_pieces
from edgert.cli.terminal import notice
from edgert.errors import UnsupportedModelError, UsageError, one_line, size

if TYPE_CHECKING:
    from edgert.llm import LLM
    from edgert.offload.expert_trace import ExpertTrace
    from edgert.offload.simulate import Device, SimulatedRun

_RATE = re.compile(r"([0-9.]+) *(k|M|G)?B/s")
_UNITS = {None: 1, "k": 10**3, "M": 10**6, "G": 10**9}


def profile(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A mixture-of-experts model, as `edgert run` takes it.")
    ],
    text: text_pieces.Text = None,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="TRACE", help="Where the routing goes.")
    ] = "routing.npz",
    max_tokens: text_pieces.MaxTokens = text_pieces.MAX_TOKENS,
    threads: options.Threads = None,
) -> None:
    """Record which experts a model chooses for each token of a text; `edgert moe simulate` reads the record.

    \b
    Example:
      edgert moe profile model.gguf --text notes.txt -o routing.npz
    """
    from edgert.llm import load
    from edgert.offload.expert_trace import save

    content = text_pieces.read_text(text, max_tokens)
    with load(Path(model), threads=threads) as llm:
        trace = record(llm, content, max_tokens)
    save(trace, Path(output))
    layers, experts = trace.expert_bytes.shape
    print(
        f"{output}: {trace.num_tokens} tokens, {layers} layers of {experts} experts, {trace.top_k} a token, "
        f"{size(trace.total_bytes)} of experts"
    )


def simulate(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="What `edgert moe profile` wrote.")],
    budget: Annotated[
        str, typer.Option("--budget", metavar="N%,N%", help="Cache sizes, as shares of all experts.")
    ] = "25%,50%",
    policy: Annotated[
        str | None, typer.Option("--policy", metavar="NAME,NAME", help="Eviction policies. Default: all, and the best.")
    ] = None,
    predictor: Annotated[
        str | None, typer.Option("--predictor", metavar="NAME,NAME", help="Predictors. Default: none, then all.")
    ] = None,
    disk: Annotated[
        str | None,
        typer.Option("--disk", metavar="RATE", help="As 500MB/s. Default: an expert while a layer is computed."),
    ] = None,
    layer_ms: Annotated[
        float, typer.Option("--layer-ms", metavar="X", help="Compute time of a layer, all experts in memory.")
    ] = 1.0,
    as_json: options.Json = False,
    plot: Annotated[
        str | None, typer.Option("--plot", metavar="FILE.svg", help="Also draw hit rate against budget.")
    ] = None,
) -> None:
    """Try eviction policies and predictors on a recorded routing: hit rate, bytes read, time spent waiting.

    The first half of the record is for fitting, the second one is simulated. A hit is an expert that is in memory
    when the router asks. Belady knows the future and evicts as well as can be done; it does not read ahead.

    \b
    Example:
      edgert moe simulate routing.npz --budget 25%,50%
      edgert moe simulate routing.npz --policy lru,lfu --predictor none,blend --disk 500MB/s --layer-ms 0.8
    """
    from edgert.cli.moe_table import hit_rate_svg, recall_table, table
    from edgert.offload.expert_trace import load
    from edgert.offload.simulate import Device, default_device

    if not 0 < layer_ms < 1e6:
        raise UsageError(f"--layer-ms: found {layer_ms}, expected more than 0, and less than 1e6")
    recorded = load(Path(trace))
    if recorded.num_tokens < 2:
        raise UsageError(f"{trace}: found 1 token, expected one for each half; record a longer text")
    device = default_device(recorded, layer_ms / 1e3)
    if disk is not None:
        device = Device(disk_bytes_per_s=parse_rate(disk), layer_s=layer_ms / 1e3)
    runs = simulate_all(recorded, parse_budgets(budget), pairs(policy, predictor), device)
    if plot is not None:
        Path(plot).write_text(hit_rate_svg(runs, recorded.total_bytes), encoding="utf-8")
    if as_json:
        print(json.dumps({"device": asdict(device), "runs": [asdict(run) for run in runs]}))
        return
    notice(f"{recorded.num_tokens - recorded.num_tokens // 2} tokens, disk {size(round(device.disk_bytes_per_s))}/s")
    print("\n".join(table(runs, recorded.total_bytes)))
    if by_layer := recall_table(runs):
        print("\n" + "\n".join(by_layer))


def record(llm: LLM, text: str, max_tokens: int) -> ExpertTrace:
    """Runs the text piece by piece. Raises UnsupportedModelError for a model without experts."""
    from edgert.offload.expert_trace import check_routed, collect, half_precision

    expert_bytes = llm.expert_bytes
    if expert_bytes.size == 0:
        raise UnsupportedModelError(f"{llm.path}: found no mixture-of-experts layer, expected some; it routes nothing")
    texts = []
    for piece in text_pieces.pieces(llm, text, max_tokens):
        llm.start_routing_trace()
        try:
            llm.logits(piece)
        finally:
            layers = llm.stop_routing_trace()
        check_routed(layers, len(piece), str(llm.path))
        texts.append((piece, half_precision(layers)))
    return collect(texts, expert_bytes)


def simulate_all(
    recorded: ExpertTrace, budgets: list[float], chosen: list[tuple[str, str]], device: Device
) -> list[SimulatedRun]:
    """For each budget LRU and Belady without prediction, which the others are held against, then each pair."""
    from edgert.offload.simulate import halves, minimum_bytes, simulate

    fit, test = halves(recorded)
    runs = []
    wanted = [pair for pair in chosen if pair not in (("lru", "none"), ("belady", "none"))]
    for share in budgets:
        capacity = max(minimum_bytes(recorded), int(recorded.total_bytes * share))
        for policy, predictor in [("lru", "none"), ("belady", "none"), *wanted]:
            runs.append(
                simulate(test, policy=policy, predictor=predictor, capacity_bytes=capacity, device=device, profile=fit)
            )
    return runs


def pairs(policies: str | None, predictors: str | None) -> list[tuple[str, str]]:
    """What to simulate; where nothing is given every policy alone, and every predictor with the default policy."""
    from edgert import _core

    if policies is None and predictors is None:
        alone = [(policy, "none") for policy in _core.policy_names()]
        return alone + [(_core.DEFAULT_POLICY, name) for name in _core.predictor_names() if name != "none"]
    return [
        (policy.strip(), predictor.strip())
        for policy in (policies or _core.DEFAULT_POLICY).split(",")
        for predictor in (predictors or f"none,{_core.DEFAULT_PREDICTOR}").split(",")
    ]


def parse_budgets(text: str) -> list[float]:
    """Shares of one from "25%,50%"."""
    shares = []
    for part in text.split(","):
        try:
            share = float(part.strip().removesuffix("%")) / 100
        except ValueError:
            share = 0.0
        if not 0 < share <= 1 or not part.strip().endswith("%"):
            raise UsageError(f"--budget: found {one_line(part)!r}, expected shares such as 25%,50%")
        shares.append(share)
    return shares


def parse_rate(text: str) -> float:
    """Bytes a second from "500MB/s"."""
    match = _RATE.fullmatch(text.strip())
    try:
        rate = float(match[1]) * _UNITS[match[2]] if match else 0.0
    except ValueError:
        rate = 0.0
    if rate <= 0:
        raise UsageError(f"--disk: found {one_line(text)!r}, expected a rate such as 500MB/s")
    return rate
