"""What run, chat and bench say of a model that is read from disk while it runs."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgert.cli import run_command
from edgert.cli.streaming import streaming_text
from edgert.engine import opening
from edgert.engine.memory_plan import MemoryPlanner
from edgert.engine.output import Timings
from edgert.engine.streaming import ExpertStats, NeuronStats, StreamingStats
from edgert.llm import DEFAULT_MODEL
from edgert.loader import open_model

from .conftest import Run

PROGRAM_BYTES = 64 << 20
LINE = re.compile(
    r"disk [\d.]+ MB in \d+ reads, [\d.]+ [MG]B/s \| waiting \d+ % of the prompt's time, \d+ % of the answer's, "
    r"most in (output|layer \d)(, (output|layer \d))* \| hits \d+, late \d+"
)
ADVICE = re.compile(r"\d+ % of the time waiting for the disk: --ram \d+MiB.* would give about [\d.]+ tok/s.*")
Called = Callable[..., tuple[str, list[str]]]


@pytest.fixture
def least(monkeypatch: pytest.MonkeyPatch) -> str:
    """The least --ram of the bundled model, as if the program took 64 MiB."""
    monkeypatch.setattr(opening, "resident_bytes", lambda: PROGRAM_BYTES)
    planner = MemoryPlanner(
        model=open_model(DEFAULT_MODEL), base_bytes=PROGRAM_BYTES, threads=2, context=128, batch_tokens=None,
        kv_format="f16",
    )  # fmt: skip
    return str(planner.minimum_bytes())


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str]) -> Called:
    """Runs a command in this process: (stdout, lines of stderr)."""

    def call(*arguments: str) -> tuple[str, list[str]]:
        assert run_command([*arguments]) == 0
        done = capsys.readouterr()
        return done.out, done.err.splitlines()

    return call


SLOW = ("-m", str(DEFAULT_MODEL), "-t", "2", "--disk-limit", "40MB/s")


def test_run_says_where_the_time_went(called: Called, least: str) -> None:
    _, lines = called("run", *SLOW, "-p", "Hello", "-c", "128", "--ram", least, "--stats", "--temp", "0")
    assert len(lines) == 3, lines
    assert lines[0].startswith("load ")
    assert LINE.fullmatch(lines[1])
    assert ADVICE.fullmatch(lines[2])


def test_json_has_the_figures_and_the_advice(called: Called, least: str) -> None:
    out, lines = called("run", *SLOW, "-p", "Hello", "-c", "128", "--ram", least, "--json", "--temp", "0")
    assert lines == []
    answer = json.loads(out)
    assert answer["timings"]["streaming"]["num_reads"] > 0
    assert ADVICE.fullmatch(answer["advice"])
    out, lines = called("run", *SLOW, "-p", "Hello", "-c", "128", "--ram", "8GiB", "--json", "--temp", "0")
    assert lines == [], "where everything fits nothing is said"
    assert (json.loads(out)["timings"]["streaming"], json.loads(out)["advice"]) == (None, None)
    assert json.loads(out)["tokens"] == answer["tokens"]


def test_without_stats_nothing_is_said(called: Called, least: str) -> None:
    assert called("run", *SLOW, "-p", "Hello", "-c", "128", "--ram", least, "--temp", "0")[1] == []


def test_chat_and_bench_show_it_too(called: Called, least: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello\n/stats\n"))
    _, lines = called("chat", *SLOW, "-c", "128", "--ram", least, "--temp", "0")
    assert [line for line in lines if LINE.fullmatch(line)]
    assert ADVICE.fullmatch(lines[-1])
    sizes = ("-p", "8", "-n", "8")
    out, lines = called("bench", *SLOW, *sizes, "--ram", str(int(least) + (1 << 20)), "--json")
    assert [line for line in lines if LINE.fullmatch(line)]
    assert json.loads(out)["rows"][0]["streaming"]["late"] > 0


def test_what_was_not_asked_for_is_said(called: Called, monkeypatch: pytest.MonkeyPatch, least: str) -> None:
    monkeypatch.setattr(opening, "available_bytes", lambda: 3_000_000)
    monkeypatch.setattr(opening, "auto_budget", lambda *_: int(least))
    arguments = ("run", *SLOW, "-p", "Hello", "-c", "128", "--temp", "0")
    _, lines = called(*arguments)
    assert len(lines) == 1
    assert re.fullmatch(
        r"default takes 3\.\d MB, 3\.0 MB are free: reading it from disk as it runs, within [\d.]+ MiB; --ram sets "
        "how much",
        lines[0],
    )
    assert called(*arguments, "--ram", "auto")[1] == []


def test_a_trace_is_written(called: Called, least: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    called("run", *SLOW, "-p", "Hello", "-c", "128", "--ram", least, "--temp", "0", "--trace", str(trace))
    categories = {event.get("cat") for event in json.loads(trace.read_text())}
    assert {"compute", "stall", "read"} <= categories


def test_a_trace_that_cannot_be_written(edgert_run: Run) -> None:
    done = edgert_run("run", "nowhere.gguf", "hi", "--trace", "no/such/folder.json")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: --trace: no/such/folder.json: No such file or directory; name a file that can be written\n"
    )


def test_a_trace_of_what_was_interrupted(command: list[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    running = subprocess.Popen(
        [*command, "run", "--raw", "Once", "-n", "-1", "--ignore-eos", "-c", "200000", "--trace", str(trace)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    assert running.stdout is not None
    assert running.stdout.read(5)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    assert running.returncode == 130
    assert any(event["name"].startswith("linear ") for event in json.loads(trace.read_text()))


def test_the_line() -> None:
    stats = StreamingStats(
        num_bytes=4_210_000_000, num_reads=4312, bytes_per_s=1.9e9, hits=312, late=41, wasted_bytes=5_000_000,
        stall_s=5.0, decode_stall_s=4.0,
        stall_s_by_layer={"0": 0.001, "3": 2.0, "17": 1.5, "20": 0.5, "21": 0.4, "output": 0.599, "embedding": 0.0},
        experts=ExpertStats(routed=50, hits=39, late=5, misses=6, prefetched=20, wasted=3, coarse=0, hit_rate=0.78),
        neurons=NeuronStats(
            active=4000, hits=1000, missed_bytes=3_000_000, requested_bytes=3_000_000, sector_bytes=5_100_000,
            filled_bytes=0, hit_rate=0.25,
        ),
    )  # fmt: skip
    timings = Timings(
        prompt_tokens=3, reused_tokens=0, prompt_s=4.0, prompt_tokens_per_s=1.0, generated_tokens=9, decode_s=5.0,
        tokens_per_s=1.6, load_s=0.1, seed=1, streaming=stats,
    )  # fmt: skip
    assert streaming_text(timings) == (
        "disk 4.21 GB in 4312 reads, 1.90 GB/s | waiting 25 % of the prompt's time, 80 % of the answer's, most in "
        "layer 3, layer 17, output | hits 312, late 41 | wasted 5.0 MB | experts 78 % hits, 5 late, 6 missed, "
        "20 predicted, 3 of these for nothing | neurons 4000 active, 25 % hits, 3.0 MB requested, 5.1 MB in sectors"
    )
