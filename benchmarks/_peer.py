"""The llama.cpp side of the comparisons: run by other scripts with the Python that has llama-cpp-python.

_peer.py tokens GGUF TEXT COUNT OUT.npy      the first COUNT tokens of a text; the last line of output is JSON
_peer.py logits GGUF IDS.npy WINDOW THREADS OUT.npy      float32 KV, no flash attention; the same
_peer.py mapped GGUF THREADS PROMPT_TOKENS TOKENS       the weights stay in the mapped file; the same
_peer.py serve GGUF THREADS                  a line of JSON for each line of JSON that is asked
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _common import marks_of, read_bytes, serve
from numpy.typing import NDArray

PROMPT_TOKENS = 4
WARM_TOKENS = 8
CONTEXT = 1024
BATCH_TOKENS = 512


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


def mapped(gguf: str, threads: str, prompt_tokens: str, count: str) -> dict[str, Any]:
    """As _budget_ours.py measures, without copies of the weights in other layouts: these would not fit a limit."""
    from llama_cpp import llama_cpp

    default_params = llama_cpp.llama_model_default_params

    def plain_params() -> Any:
        params = default_params()
        params.use_extra_bufts = False
        return params

    llama_cpp.llama_model_default_params = plain_params  # Llama() has no argument for it
    began_bytes = read_bytes()
    peer = Peer(gguf, threads)
    load_read_bytes = read_bytes() - began_bytes
    return {**marks_of(peer.tokens(int(prompt_tokens), int(count))), "load_read_bytes": load_read_bytes}


class Peer:
    """An open model that is timed on demand."""

    def __init__(self, gguf: str, threads: str) -> None:
        import llama_cpp

        self._lib = llama_cpp
        self._llama = llama_cpp.Llama(
            gguf, n_ctx=CONTEXT, n_threads=int(threads), n_threads_batch=int(threads), n_batch=BATCH_TOKENS,
            n_ubatch=BATCH_TOKENS, verbose=False,
        )  # fmt: skip
        self._context = self._llama._ctx.ctx

    def warm(self) -> None:
        self._llama.eval(prompt(PROMPT_TOKENS))

    def about(self) -> dict[str, Any]:
        return {
            "version": self._lib.__version__,
            "system": self._lib.llama_print_system_info().decode(errors="replace").strip(),
        }

    def decode(self, count: int) -> dict[str, float]:
        """Tokens a second as a Python program drives it, and through the C interface alone; choosing costs nothing."""
        self._llama.reset()
        self._llama.eval(prompt(PROMPT_TOKENS))
        python_times, c_times = [], []
        for i in range(count + WARM_TOKENS):
            self._llama.eval([300 + i])
            python_times.append(time.perf_counter())
        self._forget(0)
        self._run(prompt(PROMPT_TOKENS))
        for i in range(count + WARM_TOKENS):
            self._run([300 + i])
            c_times.append(time.perf_counter())
        self._forget(0)
        return {"python": _rate(python_times), "c": _rate(c_times)}

    def tokens(self, prompt_tokens: int, count: int) -> Iterator[int]:
        """So many tokens after a prompt, each once it is computed."""
        self._run(prompt(prompt_tokens))
        yield 300
        for i in range(1, count):
            self._run([300 + i])
            yield 300 + i

    def prefill(self, count: int) -> float:
        """Tokens a second of reading a prompt."""
        self._forget(0)
        began_s = time.perf_counter()
        for begin in range(0, count, BATCH_TOKENS):
            self._run(prompt(count)[begin : begin + BATCH_TOKENS])
        elapsed_s = time.perf_counter() - began_s
        self._forget(0)
        return count / elapsed_s

    def batches(self, sizes: list[int], context: int) -> list[float]:
        """Seconds of one step of n tokens of a sequence after `context` tokens, with the logits of all n."""
        self._forget(0)
        self._run(prompt(context))
        batch = self._lib.llama_batch_init(max(sizes), 0, 1)
        seconds = []
        for size in sizes:
            batch.n_tokens = size
            for i, token in enumerate(prompt(size)):
                batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, context + i, 1, True
                batch.seq_id[i][0] = 0
            began_s = time.perf_counter()
            self._decode(batch)
            seconds.append(time.perf_counter() - began_s)
            self._forget(context)
        self._lib.llama_batch_free(batch)
        self._forget(0)
        return seconds

    def _forget(self, length: int) -> None:
        self._lib.llama_memory_seq_rm(self._lib.llama_get_memory(self._context), 0, length, -1)

    def _run(self, ids: list[int]) -> None:
        tokens = (self._lib.llama_token * len(ids))(*ids)  # the batch only points to it
        self._decode(self._lib.llama_batch_get_one(tokens, len(ids)))

    def _decode(self, batch: Any) -> None:
        if self._lib.llama_decode(self._context, batch) != 0:
            sys.exit("llama_decode failed")
        self._lib.llama_get_logits(self._context)  # waits for the result


def prompt(count: int) -> list[int]:
    return [(7 * i) % 3000 + 300 for i in range(count)]


def _rate(times: list[float]) -> float:
    return (len(times) - WARM_TOKENS) / (times[-1] - times[WARM_TOKENS - 1])


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(Peer(*sys.argv[2:]))
    else:
        print(json.dumps({"tokens": tokens, "logits": logits, "mapped": mapped}[sys.argv[1]](*sys.argv[2:])))
