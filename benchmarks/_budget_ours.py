"""A model under a budget of memory, timed token by token: run by budget.py and budget_peer.py.

_budget_ours.py MODEL THREADS PROMPT_TOKENS TOKENS [RAM_BYTES [POLICY [BITS]]]     the last line of output is JSON

Without RAM_BYTES, or with 0: no budget. POLICY: which pieces are kept (balanced, first, none). BITS: of the weights
that are used, and a context of no more than 256 tokens; 0: all of them. The kernel counts what is read: while the
model is opened, and until each token.
"""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from _common import import_tree, marks_of, read_bytes

import_tree()
from edgert.engine.offload_items import MIN_CONTEXT  # noqa: E402
from edgert.engine.opening import LoadOptions, open_engine  # noqa: E402
from edgert.llm import LLM  # noqa: E402

# So that one token follows another as by chance: else a model of random weights repeats itself, with the same experts.
TEMPERATURE = 100.0


def measure(
    model: str,
    threads: str,
    prompt_tokens: str,
    tokens: str,
    ram_bytes: str = "0",
    policy: str = "balanced",
    bits: str = "0",
) -> dict[str, Any]:
    needed = int(prompt_tokens) + int(tokens)
    options = LoadOptions(
        threads=int(threads),
        # No budget makes the default one smaller than this.
        context=max(needed, MIN_CONTEXT) if needed > MIN_CONTEXT or int(bits) else None,
        bits=int(bits) or None,
        ram=int(ram_bytes) or None,
        lock_policy=policy,  # type: ignore[arg-type]
    )
    began_bytes = read_bytes()
    opened = open_engine(Path(model), options, None)
    with LLM(opened, load_s=0) as llm:
        load_read_bytes = read_bytes() - began_bytes
        stream = llm.stream(
            prompt(int(prompt_tokens)), max_tokens=int(tokens), temperature=TEMPERATURE, seed=1, ignore_eos=True
        )
        marks = marks_of(stream)
        placement = None
        if llm.memory is not None:
            # What is predicted needs its sums alone.
            sums = replace(llm.memory.placement, pieces=(), lock_order=(), resident=(), lookups=())
            placement = asdict(sums)
        return {**marks, "load_read_bytes": load_read_bytes, "token_bytes": llm.token_bytes, "placement": placement}


def prompt(count: int) -> list[int]:
    return [(7 * i) % 3000 + 300 for i in range(count)]


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:])))
