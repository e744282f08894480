"""What a model with squared ReLU reads of its down matrices when the feed-forward network lies on disk.

    python benchmarks/neurons.py MODEL --text wiki.test.raw --calibration other.txt --format p4 --cache 0.25

MODEL: a checkpoint that `edgert convert` takes; it is converted first. Attention stays in memory. The up matrices pass
through a ring, of the down matrices only the columns of active neurons are read, and a share of all of them is cached.
The text is a prompt (64 tokens), and then token by token what follows. Every logit is compared with the run whose
weights are all in memory. With --calibration the same again, beginning with how often each neuron is active on that
other text, as `edgert neurons` counts it ("random": on other random tokens).

requested: bytes of the records that were asked for. sectors: of the whole sectors of 4096 bytes that hold them.
"""

import argparse
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from _common import import_tree, report

import_tree()
from edgert import _core, tokenizer  # noqa: E402
from edgert.convert import convert  # noqa: E402
from edgert.device.read_size import DEFAULT_READ_SIZE  # noqa: E402
from edgert.engine.kv_plan import page_bytes  # noqa: E402
from edgert.engine.offload_items import weight_items  # noqa: E402
from edgert.loader import Model, finish_loading, open_model, start_loading  # noqa: E402
from edgert.offload.pieces import SECTOR_BYTES, WeightItem, cut  # noqa: E402
from edgert.offload.placement import MAX_WINDOWS, MIN_WINDOWS, NEURON_READ_BYTES  # noqa: E402
from edgert.quant.layout import STRIP_ROWS  # noqa: E402

BATCH_TOKENS, PIECE_BYTES = 64, 256 << 10
# The steps after the prompt that are counted apart, as memory still holds what the prompt has left.
FIRST_STEPS = 32
CALIBRATION_TOKENS = 2048
WINDOW_BYTES = NEURON_READ_BYTES + SECTOR_BYTES
BAR = 1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What of the model is on disk."""

    up: tuple[WeightItem, ...]
    down: tuple[WeightItem, ...]
    neuron_bytes: int
    frequency: dict[str, Any] | None = None

    def apply(self, store: _core.WeightStore, method: str) -> None:
        pieces = [cut(item, PIECE_BYTES) for item in self.up]
        ring_bytes = 4 * max((piece.memory_bytes for of in pieces for piece in of), default=0)
        store.set_stream(
            cuts=[(of[0].weight, [piece.first_row // STRIP_ROWS for piece in of]) for of in pieces],
            lock_order=[], lookups=[], pool_bytes=ring_bytes, ring_bytes=ring_bytes,
            neurons=[item.name for item in self.down], neuron_bytes=self.neuron_bytes, method=method,
            neuron_frequency=[self.frequency[item.name] for item in self.down] if self.frequency else [],
        )  # fmt: skip


def plan_of(model: Model, cache_share: float) -> Plan:
    items = weight_items(model)
    down = tuple(item for item in items if item.records is not None)
    if not down:
        raise SystemExit(f"{model.checkpoint.path}: found no matrix behind a squared ReLU, expected an arcee model")
    records_bytes = sum(item.records.num_bytes for item in down if item.records is not None)
    up = tuple(item for item in items if item.kind == "matrix" and item.role == "mlp_up")
    # Beside the cache: what records are read into.
    windows_bytes = min(MAX_WINDOWS, max(MIN_WINDOWS, cache_share * records_bytes / 7 / WINDOW_BYTES)) * WINDOW_BYTES
    return Plan(up=up, down=down, neuron_bytes=int(cache_share * records_bytes + windows_bytes))


def open_runtime(
    model: Model, context: int, plan: Plan | None, threads: int, method: str
) -> tuple[_core.Runtime, _core.WeightStore]:
    store = _core.WeightStore()
    set_stream = None if plan is None else lambda store: plan.apply(store, method)
    direct_reads = None if plan is None else DEFAULT_READ_SIZE
    start_loading(model, store, threads=1, set_stream=set_stream, direct_reads=direct_reads)
    finish_loading(model, store)
    runtime = _core.Runtime(
        model.graph.compile_args(), store, isa=_core.best_isa(), threads=threads, batch_tokens=BATCH_TOKENS,
        context=context, kv_format="f16", kv_budget_bytes=page_bytes(model.graph, "f16") * (context // 64 + 2),
    )  # fmt: skip
    return runtime, store


def counted(model: Model, tokens: list[int], threads: int, method: str) -> dict[str, Any]:
    """Of each down matrix the share of the tokens that activate each neuron; texts of 512 tokens."""
    length = min(512, model.context_length - BATCH_TOKENS)
    runtime, _ = open_runtime(model, length + BATCH_TOKENS, None, threads, method)
    runtime.start_neuron_counts()
    for begin in range(0, len(tokens), length):
        sequence = runtime.open_sequence()
        for at in range(begin, min(begin + length, len(tokens)), BATCH_TOKENS):
            piece = tokens[at : min(at + BATCH_TOKENS, begin + length)]
            runtime.step([_core.Span(sequence, np.array(piece, np.int32), "all")])
        runtime.release(sequence)
    return {name: (active / num).astype(np.float32) for name, (num, active) in runtime.stop_neuron_counts().items()}


def run(
    model: Model, tokens: list[int], num_prompt: int, plan: Plan | None, threads: int, method: str
) -> tuple[Any, list[dict[str, int]]]:
    """The logits of the prompt's last token and of each one after it; totals after the prompt, the first steps, all."""
    runtime, store = open_runtime(model, len(tokens) + 64, plan, threads, method)
    sequence = runtime.open_sequence()
    logits = [np.array(runtime.step([_core.Span(sequence, np.array(tokens[:num_prompt], np.int32), "last")]))]
    moments = [totals(store)]
    for step, token in enumerate(tokens[num_prompt:], 1):
        logits.append(np.array(runtime.step([_core.Span(sequence, np.array([token], np.int32), "last")])))
        if step in (FIRST_STEPS, len(tokens) - num_prompt):
            moments.append(totals(store))
    return np.concatenate(logits), moments


def totals(store: _core.WeightStore) -> dict[str, int]:
    layers = store.stream_counters().get("neurons", [])
    return {key: sum(layer[key] for layer in layers) for key in layers[0]} if layers else {}


def hit_rates(moments: list[dict[str, int]]) -> dict[str, float]:
    """Of the prompt, of the first steps after it, and of the others."""
    before = [dict.fromkeys(moments[0], 0), *moments]
    rates = [
        (end["hits"] - start["hits"]) / max(1, end["active"] - start["active"])
        for start, end in zip(before, moments, strict=False)
    ]
    return dict(zip(("prompt", "first", "later"), rates, strict=False))


def measured(
    model: Model,
    tokens: list[int],
    num_prompt: int,
    calibration: list[int],
    cache_share: float,
    threads: int,
    method: str,
) -> dict[str, Any]:
    plan = plan_of(model, cache_share)
    whole, _ = run(model, tokens, num_prompt, None, threads, method)
    found, moments = run(model, tokens, num_prompt, plan, threads, method)
    total = moments[-1]
    records = [item.records for item in plan.down if item.records is not None]
    num_steps = 1 + len(tokens) - num_prompt
    down_bytes = sum(r.num_bytes for r in records)
    result = {
        "steps": num_steps,
        "record_bytes": records[0].record_bytes,
        "neurons": sum(r.count for r in records),
        "cache_share": cache_share,
        "active_share": total["active"] / (num_steps * sum(r.count for r in records)),
        "hit_rate": total["hits"] / total["active"],
        "hit_rates": hit_rates(moments),
        "missed_bytes": total["missed_bytes"],
        "requested_bytes": total["requested_bytes"],
        "requested_of_missed": total["requested_bytes"] / max(1, total["missed_bytes"]),
        "sector_bytes": total["sector_bytes"],
        "whole_bytes": num_steps * down_bytes,
        "is_identical": bool(np.array_equal(found, whole)),
    }
    if calibration:
        frequency = counted(model, calibration, threads, method)
        found, moments = run(model, tokens, num_prompt, replace(plan, frequency=frequency), threads, method)
        result["calibrated"] = {
            "tokens": len(calibration),
            "hit_rate": moments[-1]["hits"] / moments[-1]["active"],
            "hit_rates": hit_rates(moments),
            "missed_bytes": moments[-1]["missed_bytes"],
            "filled_bytes": moments[-1]["filled_bytes"],
        }
        result["is_identical"] = result["is_identical"] and bool(np.array_equal(found, whole))
    return result


def tokens_of(model: Model, text: str | None, num: int, seed: int) -> list[int]:
    """The first tokens of a file, or random ones."""
    if text is None or text == "random":
        return [int(t) for t in np.random.default_rng(seed).integers(0, model.vocab_size, num)]
    found = tokenizer.load(model.checkpoint)
    assert found is not None, "the model has no tokenizer"
    return list(found.encode(Path(text).read_text(encoding="utf-8")[: 16 * num])[:num])


def shares(rates: dict[str, float]) -> str:
    """Hit rates as text."""
    names = {"prompt": "prompt", "first": f"next {FIRST_STEPS} steps", "later": "later"}
    return ", ".join(f"{names[phase]} {100 * rate:.1f} %" for phase, rate in rates.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", help="a file; without it, tokens at random")
    parser.add_argument("--calibration", help='another file, or "random": also begin with what is counted on it')
    parser.add_argument("--format", default="p4", help="of the matrices: p2 to p8, c2 to c4, or keep")
    parser.add_argument("--cache", type=float, default=0.25, help="share of the down matrices that is cached")
    parser.add_argument("--tokens", type=int, default=320)
    parser.add_argument("--prompt", type=int, default=64, help="of these, in the first step; at most 64")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--method", default="auto", choices=("auto", "uring", "threads", "buffered"))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.model
        if arguments.format != "keep":
            path = Path(folder) / "model"
            convert(arguments.model, path, quant=arguments.format)
        model = open_model(path)
        tokens = tokens_of(model, arguments.text, min(arguments.tokens, model.context_length - 64), seed=1)
        calibration = []
        if arguments.calibration is not None:
            calibration = tokens_of(model, arguments.calibration, CALIBRATION_TOKENS, seed=2)
        result = measured(
            model, tokens, arguments.prompt, calibration, arguments.cache, arguments.threads, arguments.method
        )
    steps = result["steps"]
    lines = [
        f"{result['neurons']} neurons, records of {result['record_bytes']} bytes, {len(tokens)} tokens, {steps} steps",
        f"active: {100 * result['active_share']:.1f} %; of these in memory: {100 * result['hit_rate']:.1f} %, with a "
        f"cache of {100 * arguments.cache:.0f} %",
        f"a step: {result['missed_bytes'] / steps:.0f} bytes of active neurons that are not cached, "
        f"{result['requested_bytes'] / steps:.0f} requested, {result['sector_bytes'] / steps:.0f} in sectors; all of "
        f"the down matrices have {result['whole_bytes'] / steps:.0f}",
        f"in memory: {shares(result['hit_rates'])}",
        f"requested: {result['requested_of_missed']:.3f} x the active neurons that are not cached (bar: {BAR})",
    ]
    if calibrated := result.get("calibrated"):
        lines.insert(
            -1,
            f"counted on {calibrated['tokens']} other tokens before: {shares(calibrated['hit_rates'])}; in all "
            f"{100 * calibrated['hit_rate']:.1f} %, {calibrated['missed_bytes'] / steps:.0f} bytes a step, and "
            f"{calibrated['filled_bytes']} to fill the cache",
        )
    lines.insert(-1, f"output identical: {'yes' if result['is_identical'] else 'NO'}")
    report(result, lines, as_json=arguments.json)


if __name__ == "__main__":
    main()
