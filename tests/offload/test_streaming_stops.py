"""A step that is stopped ends at once, reads nothing more, and leaves nothing wrong behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from edgert import _core
from edgert.errors import EdgertError, UsageError

from .streamed_models import TOP_K, Models
from .streamed_runs import (
    Plan,
    Reference,
    core_span,
    limits,
    make_reference,
    mixtures,
    open_runtime,
    placed,
    stop_later,
)

# The bar is 50 ms. A machine that runs other things as well may need a few tries.
STOP_S, TRIES = 0.05, 6
RATE = 200_000


@pytest.fixture(scope="module")
def cases(models: Models) -> dict[str, tuple[object, Plan, Reference]]:
    """Matrices, rows of an embedding, experts that are packed, neurons: each far slower than a test has time."""
    c4, f32, mixture = models.dense("c4"), models.dense("f32 untied"), models.mixture("gguf q4_0")
    arcee = models.dense("arcee c4")
    neurons = tuple(name for name in arcee.weights if "down_proj" in name)
    return {
        "matrices": (c4, placed(c4, limits(c4)[0]), make_reference(c4, (100,))),
        "lookups": (f32, Plan(lookups=("model.embed_tokens.weight",)), make_reference(f32, (200,))),
        "experts": (
            mixture,
            Plan(experts=mixtures(mixture), expert_bytes=TOP_K * 2 * 40_000),
            make_reference(mixture, (100,)),
        ),
        "neurons": (arcee, Plan(neurons=neurons, neuron_bytes=180_000), make_reference(arcee, (100,))),
        "known neurons": (
            arcee,
            Plan(neurons=neurons, neuron_bytes=250_000, neuron_frequency=(np.ones(500, np.float32),) * len(neurons)),
            make_reference(arcee, (100,)),
        ),
    }


@pytest.mark.parametrize("name", ["matrices", "lookups", "experts", "neurons", "known neurons"])
def test_stopping_ends_the_step_and_its_reads(cases, name) -> None:
    model, plan, reference = cases[name]
    took_s = []
    for _ in range(TRIES):
        runtime, store = open_runtime(model, plan, limit_bytes_per_s=RATE)
        sequence = runtime.open_sequence()
        error, seconds = stop_later(runtime, core_span(sequence, reference.tokens[0]))
        assert isinstance(error, _core.StoppedError)
        time.sleep(STOP_S)
        before = store.stream_counters()
        time.sleep(0.2)
        assert store.stream_counters()["num_bytes"] == before["num_bytes"], "reads go on"
        assert runtime.length(sequence) == 0
        took_s.append(seconds)
        if seconds < STOP_S:
            break
    assert min(took_s) < STOP_S, took_s


@pytest.mark.parametrize("name", ["matrices", "lookups", "experts", "neurons", "known neurons"])
def test_after_a_stop_the_next_step_is_right(cases, name) -> None:
    model, plan, reference = cases[name]
    num_stopped = 0
    for round_tokens in (0, 16):
        runtime, _ = open_runtime(model, plan, round_tokens=round_tokens, limit_bytes_per_s=20 * RATE)
        for delay_s in (0.0, 0.001, 0.01, 0.03, 0.1):
            sequence = runtime.open_sequence()
            first = reference.tokens[0][: min(100, runtime.batch_tokens)]
            timer = threading.Timer(delay_s, runtime.stop)
            timer.start()
            try:
                logits = np.array(runtime.step([core_span(sequence, first)]))
                assert reference.holds(0, 0, len(first), "last", logits)
            except _core.StoppedError:
                num_stopped += 1
                assert runtime.length(sequence) == 0
                timer.join()
                logits = np.array(runtime.step([core_span(sequence, first)]))
                assert reference.holds(0, 0, len(first), "last", logits)
            timer.join()
            runtime.release(sequence)
    assert num_stopped > 0


def test_a_stop_between_steps_stops_nothing(cases) -> None:
    model, plan, reference = cases["matrices"]
    runtime, _ = open_runtime(model, plan)
    runtime.stop()
    first = reference.tokens[0][:16]
    assert reference.holds(0, 0, 16, "last", np.array(runtime.step([core_span(runtime.open_sequence(), first)])))


def test_closing_while_another_thread_generates(load_small) -> None:
    llm = load_small(disk_limit=3_000_000)
    got: list[object] = []

    def consume() -> None:
        try:
            for chunk in llm.stream("Once upon a time", max_tokens=200, ignore_eos=True):
                got.append(chunk)
        except EdgertError as error:
            got.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    time.sleep(0.5)
    llm.close()
    thread.join(20)
    assert not thread.is_alive()
    assert isinstance(got[-1], UsageError)
    assert "closed" in str(got[-1])


PREFILL = """
import edgert, edgert.errors, time
from edgert.engine import opening
opening.resident_bytes = lambda: 64 << 20
ram = "1MiB"
while True:
    try:
        llm = edgert.load(threads=2, context=1024, ram=ram, disk_limit=1_000_000)
        break
    except edgert.errors.OutOfMemoryError as error:
        ram = str(error).split("at least ")[1].split(" MiB")[0] + "MiB"
print("loaded", flush=True)
try:
    llm.generate("Once upon a time there was a little cat. " * 40, max_tokens=50, ignore_eos=True)
    print("generated")
except KeyboardInterrupt:
    print(time.time(), flush=True)
"""


def test_ctrl_c_ends_a_prompt_that_is_being_read() -> None:
    took_s = []
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", PREFILL], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "loaded\n"
        time.sleep(0.7)
        begin_s = time.time()
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=30)
        assert child.returncode == 0
        took_s.append(float(out) - begin_s)
        if took_s[-1] < 0.2:
            break
    assert min(took_s) < 0.2, took_s
