"""Models with streamed weights, opened and closed again and again: nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import threading
from pathlib import Path

import pytest
from seeds import draw_rng

from edgert import _core
from edgert.device.memory import resident_bytes

from .streamed_runs import core_span, limits, num_tasks, open_runtime, placed

CYCLES = int(os.environ.get("EDGERT_SOAK_CYCLES", "300"))
WARM_UP = 60
GROWTH_BYTES = 4 << 20


def one_life(model: object, rng: random.Random, tokens: list[int]) -> None:
    """Opens a model, runs steps of which some fail or are stopped, and lets it go, now and then in the middle."""
    least, most = limits(model)  # type: ignore[arg-type]
    faults = _core.Faults(fail_at=rng.randrange(60)) if rng.random() < 0.2 else None
    runtime, _ = open_runtime(
        model,  # type: ignore[arg-type]
        placed(model, rng.randrange(least, most)),  # type: ignore[arg-type]
        round_tokens=rng.choice([0, 16]),
        method=rng.choice(["auto", "auto", "threads", "buffered"]),
        faults=faults,
    )
    sequence = runtime.open_sequence()
    for n in (16, 1, 1):
        is_stopped = rng.random() < 0.1
        timer = threading.Timer(0.002 * rng.random(), runtime.stop)
        if is_stopped:
            timer.start()
        with contextlib.suppress(OSError, _core.StoppedError):
            runtime.step([core_span(sequence, tokens[:n])])
        if is_stopped:
            timer.join()


def test_nothing_is_left_after_many_lives(models) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc/self")
    kinds = [models.dense("c4"), models.dense("gguf q4_0"), models.mixture("c4"), models.mixture("gguf q4_0")]
    rng = random.Random(int(draw_rng().integers(2**32)))
    tokens = [rng.randrange(300) for _ in range(16)]
    before = (0, 0, 0)
    for i in range(CYCLES):
        one_life(kinds[i % len(kinds)], rng, tokens)
        if i == WARM_UP:
            gc.collect()
            before = (resident_bytes(), len(os.listdir("/proc/self/fd")), num_tasks())
    gc.collect()
    after = (resident_bytes(), len(os.listdir("/proc/self/fd")), num_tasks())
    assert after[1:] == before[1:], "descriptors, threads"
    assert after[0] - before[0] < GROWTH_BYTES, f"{after[0] - before[0]} bytes"
