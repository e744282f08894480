"""Keys and values that lie on disk: the bits of a run that has all of them in memory, and nothing left behind."""

from __future__ import annotations

import gc
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core.tiny_model import LAYERS, VOCAB, TinyModel, make_model, open_runtime, page_bytes
from numpy.typing import NDArray
from page_cache import resident_pages
from seeds import draw_rng

import edgert
from edgert import _core
from edgert.engine.kv_plan import kv_space, least_kv_ram
from edgert.errors import DeviceError
from edgert.llm import DEFAULT_MODEL
from edgert.loader import open_model

from .streamed_models import Models
from .streamed_runs import core_span, limits, placed, stop_later
from .streamed_runs import open_runtime as open_streamed

FORMATS = _core.kv_format_names()
CONTEXT, PAGES = 1024, 64


def record_bytes(kv_format: str) -> int:
    return page_bytes(kv_format, is_spilled=True) // LAYERS


def spill(kv_format: str, folder: Path, *, pages: int = 3, records: int = 4, **options: Any) -> _core.KVSpill:
    """So many pages in memory, and a ring of so many records."""
    return _core.KVSpill(
        memory_bytes=pages * page_bytes(kv_format, is_spilled=True),
        ring_bytes=records * record_bytes(kv_format),
        folder=str(folder),
        **options,
    )


def span(sequence: int, tokens: NDArray[np.int32] | list[int], logits: str = "all") -> _core.Span:
    return _core.Span(sequence, np.asarray(tokens, np.int32), logits)


def append(runtime: _core.Runtime, sequence: int, tokens: list[int], step: int) -> NDArray[np.float32]:
    """The logits of every token, `step` tokens at a time."""
    return np.concatenate(
        [np.array(runtime.step([span(sequence, tokens[i : i + step])])) for i in range(0, len(tokens), step)]
    )


def draw(rng: np.random.Generator, n: int) -> list[int]:
    return [int(t) for t in rng.integers(0, VOCAB, n)]


class Twins:
    """A runtime that spills and one that has everything in memory; what is done to one is done to the other."""

    def __init__(self, runtimes: tuple[_core.Runtime, _core.Runtime]) -> None:
        self.runtimes = runtimes
        self.sequences: list[tuple[int, int]] = []

    def open(self) -> None:
        self.sequences.append((self.runtimes[0].open_sequence(), self.runtimes[1].open_sequence()))

    def fork(self, index: int) -> None:
        a, b = self.sequences[index]
        self.sequences.append((self.runtimes[0].fork(a), self.runtimes[1].fork(b)))

    def rewind(self, index: int, length: int) -> None:
        for runtime, sequence in zip(self.runtimes, self.sequences[index], strict=True):
            runtime.rewind(sequence, length)

    def release(self, index: int) -> None:
        for runtime, sequence in zip(self.runtimes, self.sequences.pop(index), strict=True):
            runtime.release(sequence)

    def length(self, index: int) -> int:
        return self.runtimes[0].length(self.sequences[index][0])

    def step(self, appends: dict[int, list[int]]) -> None:
        logits = [
            np.array(runtime.step([span(self.sequences[index][side], tokens) for index, tokens in appends.items()]))
            for side, runtime in enumerate(self.runtimes)
        ]
        assert np.isfinite(logits[0]).all()
        assert (logits[0] == logits[1]).all(), {index: len(tokens) for index, tokens in appends.items()}


def open_twins(model: TinyModel, folder: Path, kv_format: str, kv_spill: _core.KVSpill, *, threads: int = 2) -> Twins:
    options: dict[str, Any] = {"kv_format": kv_format, "kv_pages": PAGES, "context": CONTEXT, "batch_tokens": 200}
    spilled = open_runtime(model, folder, kv_spill=kv_spill, threads=threads, **options)
    return Twins((spilled, open_runtime(model, folder, threads=1, **options)))


@pytest.mark.parametrize("kv_format", FORMATS)
@pytest.mark.parametrize("threads", [1, 3])
def test_prompt_and_answer_have_the_same_bits(tmp_path: Path, kv_format: str, threads: int) -> None:
    rng = draw_rng()
    for records in (2, 3, 4, 40):
        twins = open_twins(
            make_model(rng), tmp_path, kv_format, spill(kv_format, tmp_path, records=records), threads=threads
        )
        twins.open()
        tokens = draw(rng, 700)
        for n in (100, 128, 1, 63, 64, 65, 128):
            twins.step({0: [tokens.pop() for _ in range(n)]})
        for _ in range(70):
            twins.step({0: [tokens.pop()]})
        runtime = twins.runtimes[0]
        assert runtime.kv_memory_bytes == 3 * page_bytes(kv_format, is_spilled=True)
        assert runtime.kv_disk_bytes == runtime.kv_bytes - runtime.kv_memory_bytes
        counters = runtime.kv_counters()
        assert counters["written_bytes"] >= runtime.kv_disk_bytes
        # The last 70 tokens alone read 6 pages each and more.
        assert counters["read_bytes"] > 70 * 6 * page_bytes(kv_format, is_spilled=True)
        assert twins.runtimes[1].kv_counters() == {}


@pytest.mark.parametrize("kv_format", FORMATS)
@pytest.mark.parametrize(("window", "sinks"), [(0, 0), (150, 0), (90, 70)])
def test_any_life_of_sequences_has_the_same_bits(tmp_path: Path, kv_format: str, window: int, sinks: int) -> None:
    """Sequences that are opened, forked, rewound and dropped, several in a step, with few pages in memory."""
    rng = draw_rng()
    model = make_model(rng, window=window, sinks=sinks)
    pages = int(rng.integers(3, 7))
    twins = open_twins(
        model, tmp_path, kv_format, spill(kv_format, tmp_path, pages=pages, records=int(rng.integers(2, 12)))
    )
    twins.open()
    for _ in range(150):
        index = int(rng.integers(len(twins.sequences)))
        kind = rng.choice(["step", "step", "step", "step", "open", "fork", "rewind", "release"])
        if kind == "open" and len(twins.sequences) < 5:
            twins.open()
        elif kind == "fork" and len(twins.sequences) < 5:
            twins.fork(index)
        elif kind == "rewind":
            twins.rewind(index, int(rng.integers(0, twins.length(index) + 1)))
        elif kind == "release" and len(twins.sequences) > 1:
            twins.release(index)
        elif kind == "step":
            appends: dict[int, list[int]] = {}
            for i in rng.permutation(len(twins.sequences))[: rng.integers(1, 4)]:
                n = int(rng.choice([1, 1, 2, rng.integers(1, 190)]))
                n = min(n, CONTEXT - twins.length(int(i)), 190 - sum(map(len, appends.values())))
                runtime = twins.runtimes[0]
                wanted = [(twins.sequences[j][0], len(t)) for j, t in appends.items()]
                wanted.append((twins.sequences[int(i)][0], n))
                has_room = runtime.can_write(wanted) and runtime.can_reserve(wanted)
                if n > 0 and has_room and sum(k for _, k in wanted) <= runtime.batch_tokens:
                    appends[int(i)] = draw(rng, n)
            if appends:
                twins.step(appends)
        assert twins.runtimes[0].kv_memory_bytes <= pages * page_bytes(kv_format, is_spilled=True)
    while twins.sequences:
        twins.release(0)
    assert twins.runtimes[0].kv_bytes == twins.runtimes[0].kv_disk_bytes == 0


def test_a_step_writes_no_more_than_memory_holds(tmp_path: Path) -> None:
    rng = draw_rng()
    runtime = open_runtime(
        make_model(rng), tmp_path, kv_format="f16", batch_tokens=500, kv_pages=PAGES, context=CONTEXT,
        kv_spill=spill("f16", tmp_path),
    )  # fmt: skip
    assert runtime.batch_tokens == 128
    a, b, c, d = (runtime.open_sequence() for _ in range(4))
    assert runtime.can_write([(a, 1), (b, 1), (c, 1)])
    assert not runtime.can_write([(a, 1), (b, 1), (c, 1), (d, 1)])
    with pytest.raises(_core.CapacityError, match="found room for 3 pages in memory, expected 4"):
        runtime.step([span(s, [1]) for s in (a, b, c, d)])
    assert [runtime.length(s) for s in (a, b, c, d)] == [0, 0, 0, 0]


def test_too_little_memory_and_no_folder_are_errors(tmp_path: Path) -> None:
    model = make_model(draw_rng())
    for wrong, message in (
        (spill("f16", tmp_path, pages=1), "KV memory: found 16384 bytes, expected at least 2 pages of 16384"),
        (spill("f16", tmp_path, records=1), "KV ring: found 8192 bytes, expected at least 16384"),
    ):
        with pytest.raises(_core.CoreError, match=message):
            open_runtime(model, tmp_path, kv_format="f16", kv_spill=wrong)
    with pytest.raises(FileNotFoundError):
        open_runtime(model, tmp_path, kv_format="f16", kv_spill=spill("f16", tmp_path / "nowhere"))


def test_nothing_stays_on_disk_or_in_the_page_cache(tmp_path: Path) -> None:
    """The file has no name from the beginning, and its room is free once the runtime is gone."""
    rng = draw_rng()
    folder = tmp_path / "spill"
    folder.mkdir()
    runtime = open_runtime(
        make_model(rng), tmp_path, kv_format="f16", kv_pages=PAGES, context=CONTEXT, kv_spill=spill("f16", folder)
    )
    append(runtime, runtime.open_sequence(), draw(rng, 640), 64)
    assert runtime.kv_disk_bytes > 0
    assert list(folder.iterdir()) == []
    (file,) = files_in(folder)[:1]
    assert file.stat().st_blocks * 512 >= runtime.kv_disk_bytes
    assert resident_pages(file) == 0
    del runtime
    gc.collect()
    assert files_in(folder) == []


def files_in(folder: Path) -> list[Path]:
    """What this process has open of a folder, whether it has a name or not."""
    numbers = Path("/proc/self/fd")
    return [path for path in numbers.iterdir() if path.is_symlink() and str(folder) + "/" in os.readlink(path)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"mount: {mounted.stderr.decode().strip()}")
    yield folder
    gc.collect()
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_an_error_and_costs_no_position(tmp_path: Path, small_disk: Path) -> None:
    rng = draw_rng()
    twins = open_twins(make_model(rng), tmp_path, "f32", spill("f32", small_disk))
    twins.open()
    tokens = draw(rng, CONTEXT)
    runtime, sequence = twins.runtimes[0], twins.sequences[0][0]
    with pytest.raises(OSError, match="No space left on device"):
        while True:
            done = twins.length(0)
            twins.step({0: tokens[done : done + 64]})
    done = twins.length(0)
    assert done == (10 + 3) * 64, "256 KiB hold 10 pages of 24 KiB, memory 3"
    assert runtime.length(sequence) == twins.runtimes[1].length(twins.sequences[0][1]) == done
    # What is there is right still, and can be read and rewound.
    twins.rewind(0, done - 100)
    twins.step({0: tokens[:30]})
    twins.rewind(0, 10)
    twins.step({0: tokens[:64]})


def test_a_request_that_fills_the_disk_fails_alone(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(small_disk))
    least = least_kv_ram(open_model(DEFAULT_MODEL).graph, "f16")
    short, long = list(range(90)), [1 + n % 100 for n in range(400)]
    with edgert.load(threads=2, context=500, kv_ram=least) as llm:
        expected = llm.generate(short, max_tokens=4, temperature=0.0, ignore_eos=True).tokens
        for _ in range(2):
            with pytest.raises(DeviceError, match=r"keys and values on disk: .*: No space left on device; free some"):
                llm.generate(long, max_tokens=4)
            assert llm.generate(short, max_tokens=4, temperature=0.0, ignore_eos=True).tokens == expected


FAULTS: dict[str, dict[str, Any]] = {
    "short": {"num_short": 7, "short_bytes": 5000},
    "reversed": {"is_reversed": True},
    "slow": {"stall_at": 9, "stall_s": 0.3},
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("method", ["uring", "threads", "buffered"])
def test_a_disk_that_is_odd_changes_nothing(tmp_path: Path, name: str, method: str) -> None:
    rng = draw_rng()
    faults = _core.Faults(**FAULTS[name])
    try:
        twins = open_twins(
            make_model(rng), tmp_path, "q8_0", spill("q8_0", tmp_path, records=9, method=method, faults=faults)
        )
    except OSError as error:
        pytest.skip(f"{method}: {error}")
    twins.open()
    for n in [100] * 6 + [1] * 6:
        twins.step({0: draw(rng, n)})


def test_a_failed_read_is_an_error_and_the_next_step_is_right(tmp_path: Path) -> None:
    rng = draw_rng()
    for fail_at in range(0, 40, 3):
        twins = open_twins(
            make_model(rng), tmp_path, "f16", spill("f16", tmp_path, faults=_core.Faults(fail_at=fail_at))
        )
        twins.open()
        tokens, num_errors = draw(rng, 600), 0
        while twins.length(0) < len(tokens):
            done = twins.length(0)
            try:
                twins.step({0: tokens[done : done + 50]})
            except OSError as error:
                assert "keys and values" in str(error)
                assert "Input/output error" in str(error)
                assert twins.length(0) == done
                num_errors += 1
        assert num_errors == 1


def test_stopping_ends_the_step_and_its_reads(tmp_path: Path) -> None:
    rng = draw_rng()
    took_s = []
    for _ in range(6):
        # 8 pages of 24 KiB are read in more than 0.4 s.
        kv_spill = spill("f32", tmp_path, records=20, limit_bytes_per_s=400_000)
        twins = open_twins(make_model(rng), tmp_path, "f32", kv_spill)
        twins.open()
        tokens = draw(rng, 700)
        for i in range(0, 660, 110):
            twins.step({0: tokens[i : i + 110]})
        runtime, (sequence, _) = twins.runtimes[0], twins.sequences[0]
        error, seconds = stop_later(runtime, span(sequence, tokens[660:661]))
        assert isinstance(error, _core.StoppedError)
        before = runtime.kv_counters()["num_reads"]
        time.sleep(0.05)
        assert runtime.kv_counters()["num_reads"] == before
        assert runtime.length(sequence) == 660
        twins.step({0: tokens[660:661]})
        took_s.append(seconds)
        if seconds <= 0.05:
            return
    raise AssertionError(f"stopping took {took_s} s")


@pytest.mark.parametrize("kind", ["dense", "mixture"])
def test_weights_and_pages_are_both_on_disk(models: Models, kind: str) -> None:
    """A long prompt goes through each layer in rounds: every one of them reads the pages before it."""
    rng = draw_rng()
    model = models.dense("c4") if kind == "dense" else models.mixture("c4")
    least = least_kv_ram(model.graph, "f16")
    page = kv_space(model.graph, "f16", 900, least).memory_bytes // 2
    space = kv_space(model.graph, "f16", 900, least + 5 * page)
    options: dict[str, Any] = {"batch_tokens": 900, "context": 900}
    streamed, _ = open_streamed(
        model, placed(model, limits(model)[0] * 2), round_tokens=32, kv_spill=space.spill(), **options
    )
    whole, _ = open_streamed(model, threads=1, **options)
    a, b = streamed.open_sequence(), whole.open_sequence()
    for n in (300, 100, 1, 250, 64, 1, 1, 120):
        tokens = [int(t) for t in rng.integers(0, whole.vocab_size, n)]
        modes = ["all"] if n == 1 else ["none", "last"]
        mode = str(rng.choice(modes))
        logits = np.array(whole.step([core_span(b, tokens, mode)]))
        rest = tokens
        while len(rest) > streamed.batch_tokens:
            streamed.step([core_span(a, rest[: streamed.batch_tokens], "none")])
            rest = rest[streamed.batch_tokens :]
        assert (np.array(streamed.step([core_span(a, rest, mode)])) == logits).all()
    assert streamed.batch_tokens > 2 * 32, "several rounds in a step"
    assert streamed.kv_disk_bytes > 0
