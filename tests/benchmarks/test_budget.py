"""The scripts about budgets of memory: what they count is right, on a model that is streamed."""

import json
import os
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import FOLDER, script

from edgert.llm import DEFAULT_MODEL
from edgert.offload.placement import RING_SHARE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the page cache and control groups as Linux has them")
synth, disk, memory_group = script("synth"), script("_disk"), script("_memory_group")
budget, budget_peer = script("budget"), script("budget_peer")
SHAPES = script("_shapes").SHAPES

# 92 MB of weights: more than is left of a budget of their size beside the interpreter.
STREAMED = SHAPES["llama-1b"] | {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 6, "num_attention_heads": 16,
    "num_key_value_heads": 4, "vocab_size": 4096, "max_position_embeddings": 512,
}  # fmt: skip
MIB = 1 << 20


def test_cached_bytes_are_those_that_were_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(8 * MIB))
    disk.evict([path])
    before = script("_common").read_bytes()
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead
        file.read(MIB)
    if script("_common").read_bytes() == before:
        pytest.skip("the file system lies on no disk")
    assert disk.cached_bytes([path, path]) == 2 * MIB
    disk.evict([path])
    assert disk.cached_bytes([path]) == 0


def test_the_rate_is_what_was_read_over_its_time(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(64 * MIB))
    os.sync()
    counted = []
    for _ in range(3):  # a busy machine may take longer to begin, now and then
        before, began_s = script("_common").read_bytes(), time.perf_counter()
        try:
            rate = disk.read_rate(path, 60)
        except OSError:
            pytest.skip("no direct reads here")
        elapsed_s = time.perf_counter() - began_s
        read = script("_common").read_bytes() - before
        if read == 0:
            pytest.skip("the file system lies on no disk")
        assert 64 * MIB <= read <= 65 * MIB  # and what the reader probes with
        counted.append(rate * elapsed_s)
    # Opening the file is not counted.
    assert 64 * MIB <= min(counted) <= 3 * 64 * MIB


def test_marks_are_a_time_and_a_count_for_each_token() -> None:
    common = script("_common")
    marks = common.marks_of(iter(range(5)))
    assert len(marks["token_s"]) == len(marks["token_read_bytes"]) == 5
    assert min(marks["token_s"]) >= 0


def test_a_group_ends_what_exceeds_it_and_is_removed() -> None:
    try:
        group = memory_group.MemoryGroup(96 * MIB)
    except OSError as error:
        pytest.skip(f"no control groups: {error}")
    with group:
        fits = memory_group.run([sys.executable, "-c", f"bytearray({32 * MIB})"], enter=group.enter)
        assert (fits.failure, group.num_kills) == (None, 0)
        too_much = memory_group.run([sys.executable, "-c", f"bytearray({256 * MIB})"], enter=group.enter)
        assert (too_much.failure, group.num_kills) == ("killed", 1)
        assert group.peak_bytes is None or 32 * MIB < group.peak_bytes <= 96 * MIB
        folder = group._folder
        assert folder.exists()
    assert not folder.exists()


def test_a_command_that_fails_says_why() -> None:
    ended = memory_group.run([sys.executable, "-c", "raise SystemExit('found nothing')"])
    assert (ended.exit_code, ended.failure) == (1, "found nothing")


def options(**given: Any) -> Namespace:
    """Of a short run."""
    short = {"shares": [1.0], "policies": ["balanced", "none"], "tokens": 4, "rounds": 1, "disk_seconds": 0.2}
    return Namespace(**{"threads": 2, "bits": 0, **short, **given})


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    SHAPES["streamed"] = STREAMED
    out = tmp_path_factory.mktemp("streamed") / "model"
    synth.write("streamed", out, "p8", tokenizer=DEFAULT_MODEL)
    del SHAPES["streamed"]
    return out


def test_budget_of_a_streamed_model(streamed: Path) -> None:
    rows = budget.decode("streamed", streamed, options())
    assert [row["policy"] for row in rows] == ["balanced", "none"]
    for row in rows:
        assert row["failure"] is None
        assert row["has_same_ids"]
        assert row["file_bytes"] == sum(path.stat().st_size for path in streamed.iterdir())
        assert row["peak_bytes"] <= 1.03 * row["budget_bytes"]
        assert row["must_read_bytes"] == 0  # of a budget as large as the file
        assert row["ratio"] == row["token_s"] / max(row["token_read_bytes"] / row["disk_bytes_per_s"], row["compute_s"])
    kept, none = rows
    # A file system without a disk counts no reads.
    assert none["token_read_bytes"] == 0 or 0 < kept["token_read_bytes"] < none["token_read_bytes"]
    assert kept["planned_read_bytes"] < none["planned_read_bytes"]


def test_budget_of_a_prompt(streamed: Path) -> None:
    (row,) = budget.prompts("streamed", streamed, options(prompt_tokens=64))
    # Of so small a model, what the ring reads ahead for the first token is a notable share.
    assert row["read_ratio"] < 1.1 + RING_SHARE
    assert row["prompt_tokens_per_s"] == pytest.approx(row["rate_ratio"] * row["whole_tokens_per_s"])


def test_a_budget_that_is_too_small_is_reported(streamed: Path) -> None:
    (row,) = budget.decode("streamed", streamed, options(shares=[0.1]))
    assert "expected" in row["failure"]
    assert budget.missed(row) == [row["failure"]]
    assert len(budget.decode_cells(row)) == len(budget.DECODE_HEADER)


GOOD = {
    "case": "a", "bits": 0, "share": 0.5, "policy": "balanced", "failure": None, "budget_bytes": 100, "peak_bytes": 103,
    "cached_bytes": 3, "has_same_ids": True, "ratio": 1.15, "predicted_ratio": 0.86, "token_s": 1.0,
}  # fmt: skip


def test_bars_of_a_budget() -> None:
    assert budget.missed(GOOD) == []
    for change in ({"peak_bytes": 104}, {"cached_bytes": 4}, {"has_same_ids": False}, {"ratio": 1.16},
                   {"predicted_ratio": 0.84}, {"predicted_ratio": 1.16}):  # fmt: skip
        assert len(budget.missed(GOOD | change)) == 1, change
    assert budget.missed(GOOD | {"policy": "none", "ratio": 2.0}) == []
    assert budget.missed(GOOD | {"bits": 2, "token_read_bytes": 0}) == []
    assert budget.missed(GOOD | {"bits": 2, "token_read_bytes": 4096}) == ["reads 4096 bytes a token at 2 bits"]
    first, none = GOOD | {"policy": "first", "token_s": 1.1}, GOOD | {"policy": "none", "token_s": 1.05}
    assert budget.misplaced([GOOD, first, none]) == ["a at 50%: first 1100 ms, none 1050 ms"]
    prompt = {"read_ratio": 1.1, "rate_ratio": 0.8}
    assert budget.prompt_missed(prompt) == []
    assert len(budget.prompt_missed({"read_ratio": 1.2, "rate_ratio": 0.7})) == 2


def test_bars_against_the_peer() -> None:
    one = {"case": "llama-8b/q4_0_m", "share": 0.5, "ratio": 2.3, "floor_share": 0.9, "failures": []}
    assert budget_peer.missed(one) == ["ratio 2.30 < 2.4"]
    assert budget_peer.missed(one | {"share": 0.25, "ratio": 1.6}) == []
    assert budget_peer.missed(one | {"share": 0.25, "ratio": 1.6, "floor_share": 0.8}) == ["ratio 1.60 < 1.7"]
    assert budget_peer.missed(one | {"case": "moe-8l/q4_0_m", "ratio": 5.9}) == ["ratio 5.90 < 6.0"]
    assert budget_peer.missed(one | {"failures": ["killed"], "ratio": float("nan")}) == ["killed"]


def test_budget_peer_without_a_peer(streamed: Path) -> None:
    try:
        with memory_group.MemoryGroup(64 * MIB):
            pass
    except OSError as error:
        pytest.skip(f"no control groups: {error}")
    command = [
        sys.executable, str(FOLDER / "budget_peer.py"), str(streamed), "--shares", "1.5", "--rounds", "1", "--tokens",
        "3", "--disk-seconds", "0.2", "--json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["failures"] == []
    assert row["tokens_per_s"] > 0
    assert row["peer_tokens_per_s"] is None
