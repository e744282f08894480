"""What a model with squared ReLU reads of its down matrices when the feed-forward network lies on disk.

    python benchmarks/neurons.py MODEL --text wiki.test.raw --format p4 --cache 0.25

MODEL: a checkpoint that `edgert convert` takes; it is converted first. Attention stays in memory. The up matrices pass
through a ring, of the down matrices only the columns of active neurons are read, and a share of all of them is cached.
The text is a prompt of 64 tokens, and then token by token what follows. Every logit is compared with the run whose
weights are all in memory.

requested: bytes of the records that were asked for. sectors: of the whole sectors of 4096 bytes that hold them.
"""

import argparse
import tempfile
from dataclasses import dataclass
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

PROMPT_TOKENS, PIECE_BYTES = 64, 256 << 10
WINDOW_BYTES = NEURON_READ_BYTES + SECTOR_BYTES
BAR = 1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What of the model is on disk."""

    up: tuple[WeightItem, ...]
    down: tuple[WeightItem, ...]
    neuron_bytes: int

    def apply(self, store: _core.WeightStore, method: str) -> None:
        pieces = [cut(item, PIECE_BYTES) for item in self.up]
        ring_bytes = 4 * max((piece.memory_bytes for of in pieces for piece in of), default=0)
        store.set_stream(
            cuts=[(of[0].weight, [piece.first_row // STRIP_ROWS for piece in of]) for of in pieces],
            lock_order=[], lookups=[], pool_bytes=ring_bytes, ring_bytes=ring_bytes,
            neurons=[item.name for item in self.down], neuron_bytes=self.neuron_bytes, method=method,
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


def run(model: Model, tokens: list[int], plan: Plan | None, threads: int, method: str) -> tuple[Any, dict[str, Any]]:
    """The logits of the prompt's last token and of each one after it, and what was read meanwhile."""
    store = _core.WeightStore()
    set_stream = None if plan is None else lambda store: plan.apply(store, method)
    direct_reads = None if plan is None else DEFAULT_READ_SIZE
    start_loading(model, store, threads=1, set_stream=set_stream, direct_reads=direct_reads)
    finish_loading(model, store)
    context = len(tokens) + 64
    runtime = _core.Runtime(
        model.graph.compile_args(), store, isa=_core.best_isa(), threads=threads, batch_tokens=PROMPT_TOKENS,
        context=context, kv_format="f16", kv_budget_bytes=page_bytes(model.graph, "f16") * (context // 64 + 2),
    )  # fmt: skip
    sequence = runtime.open_sequence()
    logits = [np.array(runtime.step([_core.Span(sequence, np.array(tokens[:PROMPT_TOKENS], np.int32), "last")]))]
    for token in tokens[PROMPT_TOKENS:]:
        logits.append(np.array(runtime.step([_core.Span(sequence, np.array([token], np.int32), "last")])))
    return np.concatenate(logits), store.stream_counters()


def measured(model: Model, tokens: list[int], cache_share: float, threads: int, method: str) -> dict[str, Any]:
    plan = plan_of(model, cache_share)
    whole, _ = run(model, tokens, None, threads, method)
    found, counters = run(model, tokens, plan, threads, method)
    total = {key: sum(layer[key] for layer in counters["neurons"]) for key in counters["neurons"][0]}
    records = [item.records for item in plan.down if item.records is not None]
    num_steps = 1 + len(tokens) - PROMPT_TOKENS
    down_bytes = sum(r.num_bytes for r in records)
    return {
        "steps": num_steps,
        "record_bytes": records[0].record_bytes,
        "neurons": sum(r.count for r in records),
        "cache_share": cache_share,
        "active_share": total["active"] / (num_steps * sum(r.count for r in records)),
        "hit_rate": total["hits"] / total["active"],
        "missed_bytes": total["missed_bytes"],
        "requested_bytes": total["requested_bytes"],
        "requested_of_missed": total["requested_bytes"] / max(1, total["missed_bytes"]),
        "sector_bytes": total["sector_bytes"],
        "whole_bytes": num_steps * down_bytes,
        "is_identical": bool(np.array_equal(found, whole)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, help="a file; without it, tokens at random")
    parser.add_argument("--format", default="p4", help="of the matrices: p2 to p8, c2 to c4, or keep")
    parser.add_argument("--cache", type=float, default=0.25, help="share of the down matrices that is cached")
    parser.add_argument("--tokens", type=int, default=320)
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
        if arguments.text is None:
            rng = np.random.default_rng(1)
            tokens = [int(t) for t in rng.integers(0, model.vocab_size, arguments.tokens)]
        else:
            text = tokenizer.load(model.checkpoint)
            assert text is not None, "the model has no tokenizer"
            tokens = text.encode(arguments.text.read_text(encoding="utf-8")[: 16 * arguments.tokens])
        tokens = tokens[: min(arguments.tokens, model.context_length - 64)]
        result = measured(model, tokens, arguments.cache, arguments.threads, arguments.method)
    steps = result["steps"]
    lines = [
        f"{result['neurons']} neurons, records of {result['record_bytes']} bytes, {len(tokens)} tokens, {steps} steps",
        f"active: {100 * result['active_share']:.1f} %; of these in memory: {100 * result['hit_rate']:.1f} %, with a "
        f"cache of {100 * arguments.cache:.0f} %",
        f"a step: {result['missed_bytes'] / steps:.0f} bytes of active neurons that are not cached, "
        f"{result['requested_bytes'] / steps:.0f} requested, {result['sector_bytes'] / steps:.0f} in sectors; all of "
        f"the down matrices have {result['whole_bytes'] / steps:.0f}",
        f"output identical: {'yes' if result['is_identical'] else 'NO'}",
        f"requested: {result['requested_of_missed']:.3f} x the active neurons that are not cached (bar: {BAR})",
    ]
    report(result, lines, as_json=arguments.json)


if __name__ == "__main__":
    main()
