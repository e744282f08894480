"""Does the simulator of the expert cache tell the truth? Its time for a text against that of the runtime itself.

    python benchmarks/expert_time.py MODEL --text wiki.test.raw --check     a mixture-of-experts model

The text runs token by token through the runtime, with experts on disk and a disk that is limited (--disk-limit), and
its routing through the simulator, with the same cache and the times of a layer as measured with all experts in memory.
Medians of the rounds. Logits must be those of a run whose weights are all in memory. Linux.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from _common import import_tree, markdown_table, report
from numpy.typing import NDArray

import_tree()
from edgert import _core, tokenizer  # noqa: E402
from edgert.engine.cost import expert_bytes  # noqa: E402
from edgert.engine.kv_plan import page_bytes, plan_kv  # noqa: E402
from edgert.engine.offload_items import top_k  # noqa: E402
from edgert.loader import Model, finish_loading, open_model, start_loading  # noqa: E402
from edgert.offload.expert_trace import ExpertTrace, collect, half_precision  # noqa: E402
from edgert.offload.simulate import Device, fills, simulate  # noqa: E402

BUDGETS = (0.25, 0.5)
TIME_BAR = 0.15
# At least what a slot of the core takes beside the bytes of an expert: sectors around its parts.
SLOT_SLACK = 64 << 10
# Of a step of the plan in a trace: its work, without what comes before and after it.
WORKING = 1


class Runner:
    """A model whose experts have so many bytes of memory; 0: all that they need, and nothing is streamed."""

    def __init__(self, model: Model, num_bytes: int, context: int, threads: int, limit: int = 0) -> None:
        mixtures = [list(node.weights) for node in model.graph.nodes if node.op == "moe"]

        def set_stream(store: _core.WeightStore) -> None:
            store.set_stream(
                cuts=[], lock_order=[], lookups=[], pool_bytes=0, ring_bytes=0, experts=mixtures,
                top_k=top_k(model.graph), expert_bytes=num_bytes, limit_bytes_per_s=limit,
            )  # fmt: skip

        self._store = _core.WeightStore()
        start_loading(model, self._store, threads=threads, set_stream=set_stream if num_bytes else None)
        finish_loading(model, self._store)
        kv_page = page_bytes(model.graph, "f16")
        kv = plan_kv(
            model_context=model.context_length, asked_context=context, page_bytes=kv_page, available_bytes=1 << 30
        )
        self.runtime = _core.Runtime(
            model.graph.compile_args(), self._store, isa=_core.best_isa(), threads=threads, batch_tokens=1,
            context=kv.context, kv_format="f16", kv_budget_bytes=kv.budget_bytes,
        )  # fmt: skip

    def play(self, tokens: NDArray[np.int32]) -> tuple[float, NDArray[np.float32]]:
        """Seconds of these tokens, one after the other in a sequence of their own, and their logits."""
        sequence = self.runtime.open_sequence()
        rows = []
        began_s = time.perf_counter()
        for token in tokens:
            rows.append(np.array(self.runtime.step([_core.Span(sequence, token[None], "last")])))
        elapsed_s = time.perf_counter() - began_s
        self.runtime.release(sequence)
        return elapsed_s, np.concatenate(rows)

    def num_slots(self) -> int:
        """Experts that fit."""
        return int(self._store.stream_counters()["num_expert_slots"])

    def hit_rate(self) -> float:
        layers = self._store.stream_counters()["experts"]
        return sum(layer["hits"] for layer in layers) / sum(layer["routed"] for layer in layers)


class Run(NamedTuple):
    """Seconds of all windows and of a request just before, the share of routed experts that were in memory, the experts
    that fit, whether the logits are the same."""

    seconds: float
    latency_s: float
    hit_rate: float
    num_slots: int
    is_same: bool


def compute_times(runner: Runner, tokens: NDArray[np.int32]) -> tuple[float, float, float]:
    """Seconds of a layer, the share of them before its router has chosen, seconds of a token outside of layers.

    Medians over these tokens, with all experts in memory.
    """
    tokens_s, _ = runner.play(tokens)
    runner.runtime.start_trace()
    runner.play(tokens)
    trace = runner.runtime.stop_trace()
    kinds = [kind for kind, _ in trace["steps"]]
    sorted_s, combined_s = (
        [
            end_s
            for index, phase, end_s in zip(trace["step_index"], trace["step_phase"], trace["step_end_s"], strict=True)
            if kinds[index] == kind and phase == WORKING
        ]
        for kind in ("moe_sort", "moe_combine")
    )
    num_layers = kinds.count("moe_sort")
    # Also from the last layer of a token to the first one of the next, which is longer: medians leave that out.
    spans = np.diff(combined_s)
    first_parts = np.array(sorted_s[1 : len(combined_s)]) - np.array(combined_s[:-1])
    inner = np.arange(1, len(combined_s)) % num_layers != 0
    layer_s = float(np.median(spans[inner]))
    return (
        layer_s,
        float(np.median(first_parts[inner])) / layer_s,
        max(0.0, tokens_s / len(tokens) - num_layers * layer_s),
    )


def median_request(model: Model, num_bytes: int, tokens: NDArray[np.int32], threads: int) -> int:
    """Bytes of a request, where experts have so many bytes of memory."""
    runner = Runner(model, num_bytes, len(tokens), threads)
    runner.runtime.start_trace()
    runner.play(tokens)
    return int(np.median(runner.runtime.stop_trace()["read_num_bytes"]))


def latency(model: Model, request_bytes: int) -> float:
    """Seconds that a request of so many bytes takes which is alone."""
    file = model.largest_file
    rate, _ = _core.read_rate(
        str(file), offset=0, num_bytes=file.stat().st_size, most_s=0.2, chunk_bytes=request_bytes, depth=1
    )
    return request_bytes / rate


def routing(
    runner: Runner, windows: list[NDArray[np.int32]], sizes: NDArray[np.int64]
) -> tuple[ExpertTrace, list[NDArray[np.float32]]]:
    texts, logits = [], []
    for window in windows:
        runner.runtime.start_routing_trace()
        logits.append(runner.play(window)[1])
        texts.append((window, half_precision(runner.runtime.stop_routing_trace())))
    return collect(texts, sizes), logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--window", type=int, default=256, help="tokens that begin with an empty context")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--disk-limits", type=int, nargs="+", default=[100, 200, 400], help="MB/s")
    parser.add_argument("--rounds", type=int, default=3, help="of all budgets and limits in turn; medians are shown")
    parser.add_argument("--check", action="store_true", help="exit code 1 where the bar is missed")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    model = open_model(arguments.model)
    text = tokenizer.load(model.checkpoint)
    assert text is not None, "the model has no tokenizer"
    ids = np.asarray(text.encode(arguments.text.read_text(encoding="utf-8")[: 16 * arguments.tokens]), np.int32)
    windows = np.array_split(ids[: arguments.tokens], max(1, arguments.tokens // arguments.window))
    sizes = expert_bytes(model)
    most_bytes = (int(sizes.max()) + SLOT_SLACK) * sizes.size
    whole = Runner(model, most_bytes, arguments.window, arguments.threads)
    trace, expected = routing(whole, windows, sizes)  # and all experts are in memory, but for those nobody asked for
    layer_s, before_router, token_s = compute_times(whole, windows[0])
    request_bytes = median_request(model, round(BUDGETS[0] * sizes.sum()), windows[0], arguments.threads)
    cases = [(share, limit) for share in BUDGETS for limit in arguments.disk_limits]
    runs: dict[tuple[float, int], list[Run]] = {case: [] for case in cases}
    for share, limit in cases * arguments.rounds:
        latency_s = latency(model, request_bytes)
        runner = Runner(model, round(share * sizes.sum()), arguments.window, arguments.threads, limit * 10**6)
        played = [runner.play(window) for window in windows]
        is_same = all(np.array_equal(a, b) for (_, a), b in zip(played, expected, strict=True))
        seconds = sum(seconds for seconds, _ in played)
        runs[share, limit].append(Run(seconds, latency_s, runner.hit_rate(), runner.num_slots(), is_same))
    rows = []
    for (share, limit), found in runs.items():
        device = Device(
            disk_bytes_per_s=limit * 1e6, latency_s=float(np.median([run.latency_s for run in found])),
            layer_s=layer_s, before_router=before_router, token_s=token_s,
        )  # fmt: skip
        capacity_bytes = found[0].num_slots * int(sizes.max())
        simulated = simulate(
            trace, policy=_core.DEFAULT_POLICY, predictor=_core.DEFAULT_PREDICTOR,
            num_fills=fills(trace, capacity_bytes),
            device=device,
            capacity_bytes=capacity_bytes,
            options={"over_fetch": 2 * trace.top_k, "prefetch_bytes": trace.top_k * int(sizes.max())},
        )  # fmt: skip
        engine_s = float(np.median([run.seconds for run in found]))
        rows.append({
            "budget": share, "disk_limit_mb_s": limit, "engine_s": engine_s, "simulated_s": simulated.elapsed_s,
            "ratio": simulated.elapsed_s / engine_s, "compute_s": simulated.compute_s,
            "engine_hit_rate": float(np.median([run.hit_rate for run in found])),
            "simulated_hit_rate": simulated.hit_rate, "latency_s": device.latency_s,
            "has_same_logits": all(run.is_same for run in found),
        })  # fmt: skip
    met = all(abs(row["ratio"] - 1) <= TIME_BAR and row["has_same_logits"] for row in rows)
    table = markdown_table(
        [
            "budget", "disk MB/s", "a read us", "runtime s", "simulated s", "ratio", "compute s", "hits", "simulated",
            "same logits",
        ],
        [
            [
                f"{row['budget']:.0%}", str(row["disk_limit_mb_s"]), f"{1e6 * row['latency_s']:.0f}",
                f"{row['engine_s']:.2f}",
                f"{row['simulated_s']:.2f}", f"{row['ratio']:.2f}", f"{row['compute_s']:.2f}",
                f"{row['engine_hit_rate']:.1%}", f"{row['simulated_hit_rate']:.1%}",
                "yes" if row["has_same_logits"] else "no",
            ]
            for row in rows
        ],
    )  # fmt: skip
    lines = [
        f"{arguments.threads} threads, {trace.num_tokens} tokens; a layer {1e6 * layer_s:.0f} us, "
        f"{before_router:.0%} of it before the router; the rest of a token {1e6 * token_s:.0f} us",
        *table, f"simulated time within {TIME_BAR:.0%}, same logits: {'met' if met else 'NOT MET'}",
    ]  # fmt: skip
    report({"rows": rows, "is_met": met}, lines, as_json=arguments.json)
    sys.exit(arguments.check and not met)


if __name__ == "__main__":
    main()
