"""The llama.cpp side of the comparisons: run by other scripts with the Python that has llama-cpp-python.

    _peer.py tokens GGUF TEXT COUNT OUT.npy      the first COUNT tokens of a text
    _peer.py logits GGUF IDS.npy WINDOW THREADS OUT.npy      float32 KV, no flash attention
    _peer.py decode GGUF THREADS COUNT           tokens per second, through llama-cpp-python and through its C interface
The last line of output is JSON.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PROMPT_TOKENS = 4
WARM_TOKENS = 8


def tokens(gguf: str, text: str, count: str, out: str) -> dict[str, Any]:
    from llama_cpp import Llama

    # Text enough for COUNT tokens: none is shorter than a byte, few are longer than 16.
    content = Path(text).read_bytes()[: int(count) * 16]
    ids = Llama(gguf, vocab_only=True, verbose=False).tokenize(content, add_bos=False)[: int(count)]
    np.save(out, np.asarray(ids, np.int32))
    return {"count": len(ids)}


def logits(gguf: str, ids_path: str, window: str, threads: str, out: str) -> dict[str, Any]:
    from llama_cpp import GGML_TYPE_F32, Llama

    ids, step = np.load(ids_path), int(window)
    llama = Llama(
        gguf, n_ctx=step, n_batch=step, n_ubatch=step, n_threads=int(threads), n_threads_batch=int(threads),
        logits_all=True, flash_attn=False, type_k=GGML_TYPE_F32, type_v=GGML_TYPE_F32, verbose=False,
    )  # fmt: skip
    rows: list[NDArray[np.float32]] = []
    for begin in range(0, len(ids), step):
        part = ids[begin : begin + step].tolist()
        llama.reset()
        llama.eval(part)
        rows.append(np.array(llama.scores[: len(part)], np.float32))
    np.save(out, np.concatenate(rows))
    return {"rows": len(ids)}


def decode(gguf: str, threads: str, count: str) -> dict[str, Any]:
    import llama_cpp

    llama = llama_cpp.Llama(gguf, n_ctx=1024, n_threads=int(threads), n_threads_batch=int(threads), verbose=False)
    ids = [300 + i for i in range(PROMPT_TOKENS)]
    times = []
    llama.eval(ids)
    for i in range(int(count) + WARM_TOKENS):
        llama.eval([300 + i])  # no choice of a token: what it costs is not counted against llama.cpp
        times.append(time.perf_counter())
    python_rate = (len(times) - WARM_TOKENS) / (times[-1] - times[WARM_TOKENS - 1])

    llama.reset()
    llama.eval(ids)
    context, times = llama._ctx.ctx, []
    token = (llama_cpp.llama_token * 1)(ids[-1])
    for i in range(int(count) + WARM_TOKENS):
        token[0] = 300 + i
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(token, 1)) != 0:
            sys.exit("llama_decode failed")
        llama_cpp.llama_get_logits(context)  # waits for the result
        times.append(time.perf_counter())
    c_rate = (len(times) - WARM_TOKENS) / (times[-1] - times[WARM_TOKENS - 1])
    return {"python": python_rate, "c": c_rate, "version": llama_cpp.__version__}


if __name__ == "__main__":
    print(json.dumps({"tokens": tokens, "logits": logits, "decode": decode}[sys.argv[1]](*sys.argv[2:])))
