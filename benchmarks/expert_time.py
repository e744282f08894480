"""Does the simulator of the expert cache tell the truth? Its time for a text against that of the runtime itself.

    python benchmarks/expert_time.py MODEL --text wiki.test.raw --check     a mixture-of-experts model

The text runs token by token through the runtime, with experts on disk and a disk that is limited (--disk-limit), and
its routing through the simulator, with the same cache and the times of a layer as measured with all experts in memory.
Logits must be those of a run whose weights are all in memory. Linux.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

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
from edgert.offload.simulate import Device, simulate  # noqa: E402

BUDGETS = (0.25, 0.5)
TIME_BAR = 0.15
# More than any slot of the core takes beside the bytes of an expert: sectors around each of its parts.
SLOT_SLACK = 64 << 10


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
        began_s = time.perf_counter()
        rows = [
            np.array(self.runtime.step([_core.Span(sequence, tokens[i : i + 1], "last")])) for i in range(len(tokens))
        ]
        elapsed_s = time.perf_counter() - began_s
        self.runtime.close_sequence(sequence)
        return elapsed_s, np.concatenate(rows)

    def counters(self) -> dict[str, int]:
        """Sums over the layers."""
        layers = self._store.stream_counters()["experts"]
        return {name: sum(layer[name] for layer in layers) for name in layers[0]}


def layer_times(trace: dict[str, Any], token_s: float) -> tuple[float, float]:
    """Seconds of a layer, and the share of them that lies before its router has chosen: medians over a trace."""
    kinds = [kind for kind, _ in trace["steps"]]
    routed, ended = [], []
    for index, end_s in zip(trace["step_index"].tolist(), trace["step_end_s"].tolist(), strict=True):
        if kinds[index] == "moe_sort":
            routed.append(end_s)
        elif kinds[index] == "moe_combine":
            ended.append(end_s)
    del token_s
    spans = [(end - before, sort - before) for before, sort, end in zip(ended, routed[1:], ended[1:], strict=False)]
    layer_s = float(np.median([whole for whole, _ in spans]))
    return layer_s, float(np.median([first / whole for whole, first in spans]))
