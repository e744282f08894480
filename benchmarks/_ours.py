"""The edgert side of the comparisons: run by other scripts.

    _ours.py logits MODEL IDS.npy WINDOW THREADS OUT.npy      float32 KV; the last line of output is JSON
    _ours.py serve MODEL THREADS BITS                         a line of JSON for each line of JSON that is asked
BITS: the width to run a nested file at; 0: that of the file.
"""

import json
import sys
import time
from typing import Any

import numpy as np
from _common import import_tree, serve

import_tree()
import edgert  # noqa: E402
from edgert import _core  # noqa: E402

PROMPT_TOKENS = 4
WARM_TOKENS = 8
CONTEXT = 1024


def logits(model: str, ids_path: str, window: str, threads: str, out: str) -> dict[str, Any]:
    ids, step = np.load(ids_path), int(window)
    with edgert.load(model, threads=int(threads), context=step, kv_format="f32") as llm:
        rows = [np.array(llm.logits(ids[begin : begin + step].tolist())) for begin in range(0, len(ids), step)]
    np.save(out, np.concatenate(rows))
    return {"rows": len(ids)}


class Ours:
    """An open model that is timed on demand; the same methods as `_peer.Peer`."""

    def __init__(self, model: str, threads: str, bits: str) -> None:
        view = {"bits": int(bits)} if int(bits) else {}
        self._llm = edgert.load(model, threads=int(threads), context=CONTEXT, **view)

    def warm(self) -> None:
        list(self._llm.stream(prompt(PROMPT_TOKENS), max_tokens=WARM_TOKENS, temperature=0, ignore_eos=True))

    def about(self) -> dict[str, Any]:
        return {"isa": self._llm.isa, "token_bytes": self._llm.token_bytes, "load_s": self._llm.load_s}

    def bandwidth(self) -> float:
        """Bytes a second that the model's threads read."""
        return float(_core.read_bandwidth(self._llm.threads, 1 << 30, 3))

    def decode(self, count: int) -> dict[str, float]:
        """Tokens a second, greedy, through the public interface."""
        stream = self._llm.stream(prompt(PROMPT_TOKENS), max_tokens=count + WARM_TOKENS, temperature=0, ignore_eos=True)
        times = [time.perf_counter() for _ in stream]
        return {"python": (len(times) - WARM_TOKENS) / (times[-1] - times[WARM_TOKENS - 1])}

    def prefill(self, count: int) -> float:
        """Tokens a second of reading a prompt, through the public interface."""
        began_s = time.perf_counter()
        list(self._llm.stream(prompt(count), max_tokens=1, temperature=0, ignore_eos=True))
        return count / (time.perf_counter() - began_s)

    def batches(self, sizes: list[int], context: int) -> list[float]:
        """Seconds of one step of n tokens of a sequence after `context` tokens, with the logits of all n."""
        runtime = self._llm._engine._runtime  # the public interface copies the logits
        sequence = runtime.open_sequence()
        runtime.step([_core.Span(sequence, np.array(prompt(context), np.int32), "none")])
        seconds = []
        for size in sizes:
            span = _core.Span(sequence, np.array(prompt(size), np.int32), "all")
            began_s = time.perf_counter()
            runtime.step([span])
            seconds.append(time.perf_counter() - began_s)
            runtime.rewind(sequence, context)
        runtime.release(sequence)
        return seconds

    def steps(self, count: int) -> int:
        """So many steps of one token, for instruction counts."""
        runtime = self._llm._engine._runtime
        sequence = runtime.open_sequence()
        for token in prompt(count):
            runtime.step([_core.Span(sequence, np.array([token], np.int32), "last")])
        runtime.release(sequence)
        return count


def prompt(count: int) -> list[int]:
    return [(7 * i) % 3000 + 300 for i in range(count)]


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(Ours(*sys.argv[2:]))
    else:
        print(json.dumps(logits(*sys.argv[2:])))
