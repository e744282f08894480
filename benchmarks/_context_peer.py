"""The llama.cpp side of context.py: run with the Python that has llama-cpp-python; flash attention, C interface.

_context_peer.py serve GGUF THREADS CONTEXT KV_FORMAT       a line of JSON for each line of JSON that is asked
"""

import statistics
import sys
import time
from typing import Any

from _common import serve

BATCH_TOKENS = 512


class Peer:
    """One sequence that grows."""

    def __init__(self, gguf: str, threads: str, context: str, kv_format: str) -> None:
        import llama_cpp

        self._lib = llama_cpp
        kv_type = getattr(llama_cpp, f"GGML_TYPE_{kv_format.upper()}")
        self._llama = llama_cpp.Llama(
            gguf, n_ctx=int(context), n_threads=int(threads), n_threads_batch=int(threads), n_batch=BATCH_TOKENS,
            n_ubatch=BATCH_TOKENS, flash_attn=True, type_k=kv_type, type_v=kv_type, verbose=False,
        )  # fmt: skip
        self._context = self._llama._ctx.ctx
        self._length = 0

    def about(self) -> dict[str, Any]:
        return {"version": self._lib.__version__}

    def fill(self, length: int) -> dict[str, float]:
        began_s = time.perf_counter()
        for begin in range(self._length, length, BATCH_TOKENS):
            self._run([i % 3000 + 300 for i in range(begin, min(begin + BATCH_TOKENS, length))])
        self._length = length
        return {"elapsed_s": time.perf_counter() - began_s}

    def decode(self, count: int) -> dict[str, float]:
        steps = []
        for i in range(count):
            began_s = time.perf_counter()
            self._run([300 + i])
            steps.append(time.perf_counter() - began_s)
        self._lib.llama_memory_seq_rm(self._lib.llama_get_memory(self._context), 0, self._length, -1)
        return {"elapsed_s": statistics.median(steps)}

    def _run(self, ids: list[int]) -> None:
        tokens = (self._lib.llama_token * len(ids))(*ids)  # the batch only points to it
        if self._lib.llama_decode(self._context, self._lib.llama_batch_get_one(tokens, len(ids))) != 0:
            sys.exit("llama_decode failed")
        self._lib.llama_get_logits(self._context)  # waits for the result


if __name__ == "__main__":
    serve(Peer(*sys.argv[2:]))
