"""The edgert side of context.py: one sequence that grows.

_context_ours.py serve MODEL THREADS CONTEXT KV_FORMAT      a line of JSON for each line of JSON that is asked
"""

import statistics
import sys
import time
from typing import Any, cast

import numpy as np
from _common import import_tree, serve

import_tree()
import edgert  # noqa: E402
from edgert import _core  # noqa: E402

PAGE_TOKENS = 64


class Ours:
    """The same methods as `_context_peer.Peer`; attention_s is what the profile of the steps gives to attention."""

    def __init__(self, model: str, threads: str, context: str, kv_format: str) -> None:
        self._llm = edgert.load(model, threads=int(threads), context=int(context), kv_format=cast(Any, kv_format))
        self._runtime = self._llm._engine._runtime  # steps of one sequence, without sampling
        self._sequence = self._runtime.open_sequence()
        self._kv_format = kv_format

    def about(self) -> dict[str, Any]:
        config, runtime = self._llm.config, self._runtime
        heads = config["num_attention_heads"]
        head_dim = config.get("head_dim", config["hidden_size"] // heads)
        layers = config["num_hidden_layers"]
        return {
            "isa": self._llm.isa, "kv_token_bytes": runtime.kv_page_bytes / PAGE_TOKENS,
            "macs_per_pair": 2 * layers * heads * head_dim,
        }  # fmt: skip

    def machine(self) -> dict[str, float]:
        """Bytes a second that the threads read, and float32 multiply-adds a second."""
        threads = self._llm.threads
        return {"bandwidth": _core.read_bandwidth(threads, 1 << 30, 3), "fma_peak": _core.fma_peak(threads)}

    def fill(self, length: int) -> dict[str, float]:
        """Appends arbitrary tokens until the sequence has `length`."""
        self._llm.start_profile()
        began_s = time.perf_counter()
        num_runs = 0
        for begin in range(self._runtime.length(self._sequence), length, self._runtime.batch_tokens):
            ids = np.arange(begin, min(begin + self._runtime.batch_tokens, length), dtype=np.int32) % 3000 + 300
            self._runtime.step([_core.Span(self._sequence, ids, "none")])
            num_runs += 1
        elapsed_s = time.perf_counter() - began_s
        return {"elapsed_s": elapsed_s, "attention_s": num_runs * self._attention_s()}

    def decode(self, count: int) -> dict[str, float]:
        """Medians of `count` steps of one token; the sequence is as long as before afterwards."""
        length = self._runtime.length(self._sequence)
        steps, attention = [], []
        for i in range(count):
            span = _core.Span(self._sequence, np.array([300 + i], np.int32), "last")
            self._llm.start_profile()
            began_s = time.perf_counter()
            self._runtime.step([span])
            steps.append(time.perf_counter() - began_s)
            attention.append(self._attention_s())
        self._runtime.rewind(self._sequence, length)
        return {"elapsed_s": statistics.median(steps), "attention_s": statistics.median(attention)}

    def _attention_s(self) -> float:
        costs = self._llm.stop_profile().costs
        return sum(cost.working_s + cost.waiting_s for cost in costs if cost.kind == "attention")


if __name__ == "__main__":
    serve(Ours(*sys.argv[2:]))
