"""Run with count_allocations preloaded: prints as JSON how many allocations the core made while decoding.

decode_counted.py LIBRARY MODEL THREADS
"""

import ctypes
import json
import sys

import edgert
from edgert import _core

WARM_TOKENS, TOKENS = 8, 200  # more than three pages of the KV cache


def main(library: str, model: str, threads: str) -> None:
    counter = ctypes.PyDLL(library)  # keeps Python's lock, so that starting and stopping allocate nothing unlocked
    counter.stop_counting.restype = ctypes.c_long
    with edgert.load(model, threads=int(threads), context=512) as llm:
        stream = llm.stream(list(range(5, 21)), max_tokens=WARM_TOKENS + TOKENS, temperature=0, ignore_eos=True)
        for _ in range(WARM_TOKENS):
            next(stream)
        assert counter.start_counting() == 0
        num_tokens = sum(1 for _ in stream)
        num_allocations = counter.stop_counting()
    # What surely allocates without the lock must be seen.
    counter.start_counting()
    _core.read_bandwidth(2, 1 << 20, 1)
    print(json.dumps({"tokens": num_tokens, "allocations": num_allocations, "seen": counter.stop_counting()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
