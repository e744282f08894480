"""Does a process that answers for a long time keep its memory, its pages and its threads?

Many short generations in one process, from several threads, continuations and chats mixed, a tenth of them cancelled at
a random moment (closed, or just dropped). Resident memory is looked at all along: after the warm-up, a fifth of the
generations, the largest may be 2 % above the smallest. At the end no page of keys and values may be held, no request
may be open, and no thread may be left.

    python benchmarks/soak.py                                      10,000 with the bundled model
    python benchmarks/soak.py --generations 300 --model model.gguf
"""

import argparse
import gc
import itertools
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from _common import import_tree, report
from memory import resident_bytes

import_tree()
import edgert  # noqa: E402

CANCELLED_SHARE = 0.1
WARM_UP_SHARE = 0.2
NUM_SAMPLES = 100
MAX_GROWTH = 0.02
PROMPTS = ("Once upon a time", "The cat", "What is the capital of France?", "Hello!", "One day, a small dog went to")


def generate_one(llm: edgert.LLM, rng: random.Random) -> str:
    """One generation; says how it ended."""
    prompt, tokens = rng.choice(PROMPTS), rng.randint(2, 12)
    options: dict[str, Any] = {"max_tokens": tokens, "seed": rng.getrandbits(32), "ignore_eos": rng.random() < 0.5}
    is_chat = rng.random() < 0.3
    stream = (
        llm.stream_chat([{"role": "user", "content": prompt}], **options) if is_chat else llm.stream(prompt, **options)
    )
    if rng.random() >= CANCELLED_SHARE:
        for _ in stream:
            pass
        return "finished"
    for _ in zip(range(rng.randrange(tokens)), stream, strict=False):
        pass
    # The others' steps go on: the moment is anywhere in one.
    time.sleep(rng.random() * 0.005)
    if rng.random() < 0.5:
        stream.close()
    return "cancelled"  # an open stream is dropped here


def soak(llm: edgert.LLM, count: int, num_threads: int, seed: int) -> tuple[Counter[str], list[int]]:
    """How the generations ended, and the resident bytes on the way."""
    numbers, ends = itertools.count(), [Counter[str]() for _ in range(num_threads)]
    samples: list[int] = []
    step = max(1, count // NUM_SAMPLES)

    def work(ended: Counter[str]) -> None:
        while (number := next(numbers)) < count:
            try:
                ended[generate_one(llm, random.Random(f"{seed}.{number}"))] += 1
            except Exception as error:
                ended[f"{type(error).__name__}: {error}"] += 1
            if number % step == 0 and number >= WARM_UP_SHARE * count:
                samples.append(resident_bytes())

    threads = [threading.Thread(target=work, args=(ended,)) for ended in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(ends, Counter()), samples


def num_threads_of_process() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def measure(model: str | None, count: int, num_threads: int, seed: int) -> dict[str, Any]:
    threads_before, begin = num_threads_of_process(), time.perf_counter()
    with edgert.load(model, context=256) as llm:
        ends, samples = soak(llm, count, num_threads, seed)
        gc.collect()
        kept_bytes = llm.kv_bytes
        llm.clear_cache()
        held_bytes = llm.kv_bytes
        num_open = llm._engine.num_active
    gc.collect()
    return {
        "generations": sum(ends.values()), "threads": num_threads, "seed": seed,
        "elapsed_s": round(time.perf_counter() - begin, 1), "ends": dict(ends),
        "resident_min_bytes": min(samples), "resident_max_bytes": max(samples),
        "resident_first_bytes": samples[0], "resident_last_bytes": samples[-1],
        "growth": round(max(samples) / min(samples) - 1, 4),
        "kept_kv_bytes": kept_bytes, "lost_kv_bytes": held_bytes, "open_requests": num_open,
        "threads_left": num_threads_of_process() - threads_before,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="default: the bundled one")
    parser.add_argument("--generations", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.model, arguments.generations, arguments.threads, arguments.seed)
    ends = ", ".join(f"{count} {end}" for end, count in sorted(found["ends"].items()))
    lines = [
        f"{found['generations']} generations from {found['threads']} threads in {found['elapsed_s']} s: {ends}",
        f"pages: {found['kept_kv_bytes']} bytes of kept conversations, {found['lost_kv_bytes']} after they were freed",
        f"left: {found['open_requests']} open requests, {found['threads_left']} threads",
        f"resident memory after the warm-up: {found['resident_min_bytes'] / 1e6:.1f} to "
        f"{found['resident_max_bytes'] / 1e6:.1f} MB, {100 * found['growth']:.2f} %",
    ]
    report(found, lines, as_json=arguments.json)
    is_well = set(found["ends"]) <= {"finished", "cancelled"} and found["growth"] <= MAX_GROWTH
    is_lost = found["lost_kv_bytes"] or found["open_requests"] or found["threads_left"]
    sys.exit(not is_well or bool(is_lost))


if __name__ == "__main__":
    main()
