"""`kv_ram`: long contexts whose keys and values lie on disk, by the public way."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from engine.streamed_models import write_mixture

import edgert
from edgert import _core
from edgert.engine import opening
from edgert.engine.kv_plan import kv_space, least_kv_ram
from edgert.engine.memory_plan import MemoryPlanner
from edgert.errors import DeviceError, OutOfMemoryError, UsageError
from edgert.llm import DEFAULT_MODEL
from edgert.loader import open_model

CONTEXT = 512
GREEDY = {"max_tokens": 60, "temperature": 0.0, "ignore_eos": True}


@pytest.fixture(scope="module")
def least() -> int:
    return least_kv_ram(open_model(DEFAULT_MODEL).graph, "f16")


def prompt(seed: int) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(0, 200, 300)]


@pytest.mark.parametrize("ram", [None, "least"])
def test_answers_are_those_of_a_run_in_memory(monkeypatch: pytest.MonkeyPatch, least: int, ram: str | None) -> None:
    with edgert.load(threads=2, context=CONTEXT) as llm:
        expected = [llm.generate(prompt(seed), **GREEDY).tokens for seed in range(3)]
    options: dict[str, object] = {"kv_ram": least}
    if ram is not None:
        monkeypatch.setattr(opening, "resident_bytes", lambda: 64 << 20)
        planner = MemoryPlanner(
            model=open_model(DEFAULT_MODEL), base_bytes=64 << 20, threads=2, context=CONTEXT, batch_tokens=None,
            kv_format="f16",
        )  # fmt: skip
        options = {"ram": planner.minimum_bytes()}
    with edgert.load(threads=2, context=CONTEXT, **options) as llm:  # type: ignore[arg-type]
        done = llm.generate(prompt(0), **GREEDY)
        assert done.tokens == expected[0]
        assert done.timings.kv is not None
        assert done.timings.kv.read_bytes > 60 * done.timings.kv.written_bytes / 8 > 0
        assert (done.timings.streaming is None) == (ram is None)
        # Several at once, and a kept conversation that goes on.
        assert [c.tokens for c in llm.generate([prompt(seed) for seed in range(3)], **GREEDY)] == expected
        assert llm.generate(prompt(0), **GREEDY).tokens == expected[0]


def test_requests_share_the_pages_that_a_step_writes(least: int) -> None:
    """Memory for two pages: no answer, and no prompt of 300 tokens, waits until another answer has ended."""
    options = GREEDY | {"max_tokens": 150}
    prompts = [[1, 2, 3], prompt(0), [4], [5]]
    with edgert.load(threads=1, context=CONTEXT, kv_ram=least) as llm:
        expected = [llm.generate(tokens, **options).tokens for tokens in prompts]
        done = llm.generate(prompts, **options)
    assert [completion.tokens for completion in done] == expected
    timings = [completion.timings for completion in done]
    assert max(t.prompt_s for t in timings) < min(t.prompt_s + t.decode_s for t in timings)


def test_a_trace_shows_the_reads(least: int) -> None:
    with edgert.load(threads=1, context=CONTEXT, kv_ram=least) as llm:
        llm.generate(prompt(0), max_tokens=1)
        llm.start_trace()
        kv = llm.generate(prompt(0) + [1], max_tokens=3, ignore_eos=True).timings.kv
        file = io.StringIO()
        llm.write_trace(file)
    assert kv is not None
    reads = [event for event in json.loads(file.getvalue()) if event.get("cat") == "read"]
    assert {event["name"] for event in reads} == {"keys and values"}
    assert (len(reads), sum(event["args"]["bytes"] for event in reads)) == (kv.num_reads, kv.read_bytes)


def test_a_context_that_fits_is_not_on_disk(least: int) -> None:
    with edgert.load(threads=1, context=CONTEXT, kv_ram="1GiB") as llm:
        assert llm.generate(prompt(0), max_tokens=2).timings.kv is None
    with pytest.raises(UsageError, match=r"--kv-ram: found \d+ bytes, expected at least \d+MiB for this model"):
        edgert.load(threads=1, context=CONTEXT, kv_ram=least - 1)


@pytest.mark.parametrize("value", ["auto", "3 cats", 0, -5, ""])
def test_bad_sizes(value: object) -> None:
    with pytest.raises(UsageError, match="kv_ram: found"):
        edgert.load(kv_ram=value)  # type: ignore[arg-type]


def test_a_context_that_was_asked_for_spills_where_it_does_not_fit() -> None:
    """With enough for the weights and half of the keys and values, an eighth of the budget is theirs."""
    model = open_model(DEFAULT_MODEL)
    planner = MemoryPlanner(
        model=model, base_bytes=0, threads=2, context=400_000, batch_tokens=None, kv_format="f16", can_spill=False
    )
    whole = kv_space(model.graph, "f16", 400_000, None).memory_bytes
    with pytest.raises(OutOfMemoryError):
        planner.plan(whole // 2)
    plan = MemoryPlanner(
        model=model, base_bytes=0, threads=2, context=400_000, batch_tokens=None, kv_format="f16"
    ).plan(whole // 2)
    assert plan.kv == kv_space(model.graph, "f16", 400_000, whole // 16)
    assert plan.kv.memory_bytes + plan.kv.ring_bytes <= whole // 16
    assert plan.placement.fits, "what keys and values leave is enough for the weights"


def test_a_folder_that_is_not_there_is_one_error(tmp_path: Path, least: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "edgert", "run", "-p", "Hello", "-c", str(CONTEXT), "--kv-ram", str(least)],
        env=os.environ | {"TMPDIR": str(tmp_path / "nowhere")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(r"^error: --kv-ram: .*nowhere.*TMPDIR$", done.stderr, re.MULTILINE), done.stderr


def test_a_runtime_that_cannot_be_made_does_not_blame_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(_core, "Runtime", refuse)
    with pytest.raises(DeviceError, match="cannot be run with 3 threads: Resource temporarily unavailable; ask for f"):
        edgert.load(threads=3, context=CONTEXT)


def test_the_line_of_stats(least: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "edgert", "run", "-p", "Hello", "-c", str(CONTEXT), "--kv-ram", str(least), "-n", "400",
         "--ignore-eos", "--stats"],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    line = r"keys and values [\d.]+ MB read in \d+ reads, [\d.]+ [kM]B written \| waiting \d+ % of the time"
    assert re.search(line, done.stderr)


PEAK = """
import pathlib, re, sys
import numpy as np
import edgert
kv_ram = None if sys.argv[2] == "all" else sys.argv[2]
with edgert.load(sys.argv[1], context=6100, kv_format="f32", threads=2, kv_ram=kv_ram) as llm:
    tokens = [int(t) for t in np.random.default_rng(1).integers(0, 64, 6000)]
    done = llm.generate(tokens, max_tokens=8, temperature=0.0, ignore_eos=True)
print(done.tokens)
print(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
"""


def test_what_is_on_disk_takes_no_memory(tmp_path: Path) -> None:
    """6000 tokens of 2 layers, 2 KV heads and 64 values in f32: 2048 bytes each."""
    model = write_mixture(tmp_path / "model", 3)
    outputs = [
        subprocess.run([sys.executable, "-c", PEAK, str(model), kv_ram], capture_output=True, text=True, check=True)
        for kv_ram in ("all", "2MiB")
    ]
    (tokens, peak_kib), (spilled_tokens, spilled_peak_kib) = (output.stdout.splitlines() for output in outputs)
    assert tokens == spilled_tokens
    saved = (int(peak_kib) - int(spilled_peak_kib)) * 1024
    assert saved >= 0.9 * (6000 * 2048 - (2 << 20)), saved
