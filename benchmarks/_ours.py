"""The edgert side of the comparisons: run by other scripts, one process for each measurement.

    _ours.py logits MODEL IDS.npy WINDOW THREADS OUT.npy      float32 KV
    _ours.py decode MODEL THREADS COUNT          tokens per second, greedy, through the public API
The last line of output is JSON.
"""

import json
import sys
import time
from typing import Any

import numpy as np
from _common import import_tree

import_tree()
import edgert  # noqa: E402

PROMPT_TOKENS = 4
WARM_TOKENS = 8


def logits(model: str, ids_path: str, window: str, threads: str, out: str) -> dict[str, Any]:
    ids, step = np.load(ids_path), int(window)
    with edgert.load(model, threads=int(threads), context=step, kv_format="f32") as llm:
        rows = [np.array(llm.logits(ids[begin : begin + step].tolist())) for begin in range(0, len(ids), step)]
    np.save(out, np.concatenate(rows))
    return {"rows": len(ids)}


def decode(model: str, threads: str, count: str) -> dict[str, Any]:
    ids = [300 + i for i in range(PROMPT_TOKENS)]
    with edgert.load(model, threads=int(threads), context=1024) as llm:
        list(llm.stream(ids, max_tokens=WARM_TOKENS, temperature=0, ignore_eos=True))
        times = [
            time.perf_counter()
            for _ in llm.stream(ids, max_tokens=int(count) + WARM_TOKENS, temperature=0, ignore_eos=True)
        ]
    return {"python": (len(times) - WARM_TOKENS) / (times[-1] - times[WARM_TOKENS - 1])}


if __name__ == "__main__":
    print(json.dumps({"logits": logits, "decode": decode}[sys.argv[1]](*sys.argv[2:])))
