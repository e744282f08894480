"""The requests that were measured to be the best for a disk: the file that keeps them, and the loads that read it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import edgert
from edgert import _core
from edgert.cli.fit_plan import fit_plan
from edgert.device import disk, read_size
from edgert.device.disk import DiskRate
from edgert.device.read_size import DEFAULT_READ_SIZE, READ_SIZES, ReadSize, disks_file, keep_choice, read_size_for
from edgert.engine import opening
from edgert.engine.kv_plan import KVSpace
from edgert.engine.memory_plan import MemoryPlanner
from edgert.engine.opening import LoadOptions
from edgert.llm import DEFAULT_MODEL
from edgert.loader import open_model

OTHER = ReadSize(chunk_bytes=256 << 10, depth=4)


def measured(path: Path, size: ReadSize = OTHER, gb_per_s: float = 1.5) -> DiskRate:
    return DiskRate(
        path=str(path),
        gb_per_s=gb_per_s,
        is_direct=True,
        chunk_bytes=size.chunk_bytes,
        depth=size.depth,
        is_chosen=True,
    )


def test_every_size_can_be_kept_and_holds_in_the_buffers(tmp_path: Path) -> None:
    disks = tmp_path / "edgert" / "disks.json"
    assert read_size_for(disks, tmp_path) == DEFAULT_READ_SIZE == ReadSize(chunk_bytes=1 << 20, depth=8)
    assert DEFAULT_READ_SIZE in READ_SIZES
    for size in READ_SIZES:
        assert size.chunk_bytes * size.depth <= 16 << 20
        keep_choice(disks, measured(tmp_path, size))
        # Of the disk, not of the file.
        (tmp_path / "file").touch()
        assert read_size_for(disks, tmp_path / "file") == size
    assert [path.name for path in disks.parent.iterdir()] == ["disks.json"]


def test_other_disks_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disks = tmp_path / "disks.json"
    monkeypatch.setattr(read_size, "_disk_of", lambda path: path.name)
    for i in range(read_size.MAX_DISKS):
        keep_choice(disks, measured(Path(f"disk-{i}"), READ_SIZES[i % len(READ_SIZES)]))
    for i in range(read_size.MAX_DISKS):
        assert read_size_for(disks, Path(f"disk-{i}")) == READ_SIZES[i % len(READ_SIZES)]
    # The one that was measured longest ago makes room.
    keep_choice(disks, measured(Path("disk-0")))
    keep_choice(disks, measured(Path("new")))
    assert read_size_for(disks, Path("new")) == read_size_for(disks, Path("disk-0")) == OTHER
    assert READ_SIZES[1] != DEFAULT_READ_SIZE
    assert read_size_for(disks, Path("disk-1")) == DEFAULT_READ_SIZE


def test_a_measurement_that_was_disturbed_replaces_nothing(tmp_path: Path) -> None:
    disks = tmp_path / "disks.json"
    keep_choice(disks, measured(tmp_path, READ_SIZES[0], 0.4))
    keep_choice(disks, measured(tmp_path, OTHER, 2.0))
    assert read_size_for(disks, tmp_path) == OTHER
    keep_choice(disks, measured(tmp_path, READ_SIZES[0], 1.7))
    assert read_size_for(disks, tmp_path) == OTHER
    keep_choice(disks, measured(tmp_path, READ_SIZES[-1], 1.85))
    assert read_size_for(disks, tmp_path) == READ_SIZES[-1]


def test_what_was_not_measured_is_not_kept(tmp_path: Path) -> None:
    disks = tmp_path / "disks.json"
    keep_choice(disks, replace(measured(tmp_path), is_chosen=False))
    keep_choice(disks, replace(measured(tmp_path), is_direct=False))
    keep_choice(None, measured(tmp_path))
    assert not disks.exists()
    # Nor is it an error where it cannot be kept, or where there is nothing to ask.
    (tmp_path / "file").touch()
    keep_choice(tmp_path / "file" / "disks.json", measured(tmp_path))
    keep_choice(disks, measured(tmp_path / "nowhere"))
    assert not disks.exists()
    assert read_size_for(None, tmp_path) == read_size_for(disks, tmp_path / "nowhere") == DEFAULT_READ_SIZE


def test_what_a_stranger_wrote_is_not_believed(tmp_path: Path) -> None:
    disks, number = tmp_path / "disks.json", str(tmp_path.stat().st_dev)

    def found(value: Any) -> ReadSize:
        disks.write_text(value if isinstance(value, str) else json.dumps(value))
        return read_size_for(disks, tmp_path)

    assert found({"edgert_disks": 1, "disks": {number: [256 << 10, 4, 1.5]}}) == OTHER
    for size in (
        [1 << 30, 1024, 1.5], [256 << 10, 5, 1.5], [262145, 4, 1.5], [0, 0, 1.5], [-1, 8, 1.5], [1 << 20, 1 << 70, 1.5],
        ["1", "2", "3"], [[1 << 20], 8, 1.5], [None, None, None], [1e999, 8, 1.5], [1 << 20], [256 << 10, 4], [1, 2, 3],
        [256 << 10, 4, 0], [256 << 10, 4, -1], [256 << 10, 4, 1e999], [256 << 10, 4, "1"], [256 << 10, 4, None],
        [256 << 10, 4, 1 << 2000], {}, "abc", 7, None, True,
    ):  # fmt: skip
        assert found({"edgert_disks": 1, "disks": {number: size}}) == DEFAULT_READ_SIZE, size
    for value in (
        "", "{", "[" * 100_000, "null", "[]", "7", {}, {"disks": {number: [256 << 10, 4, 1.5]}}, {"edgert_disks": 1},
        {"edgert_disks": 2, "disks": {number: [256 << 10, 4, 1.5]}}, {"edgert_disks": 1, "disks": [number]},
        {"edgert_disks": 1, "disks": None},
    ):  # fmt: skip
        assert found(value) == DEFAULT_READ_SIZE, value
    disks.write_bytes(b"\xff\xfe\x00")
    assert read_size_for(disks, tmp_path) == DEFAULT_READ_SIZE
    with disks.open("wb") as file:
        file.truncate(1 << 40)
    assert read_size_for(disks, tmp_path) == DEFAULT_READ_SIZE
    # What is kept afterwards does not depend on what was there.
    keep_choice(disks, measured(tmp_path))
    assert read_size_for(disks, tmp_path) == OTHER


def test_fit_keeps_what_it_chose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    options = LoadOptions(ram="1GiB", context=64)
    small = fit_plan(DEFAULT_MODEL, options, lambda _: None)["disk"]
    assert not small["is_chosen"]
    assert list(tmp_path.iterdir()) == []
    # As if the model were large enough.
    monkeypatch.setattr(disk, "SAMPLE_BYTES", 1 << 20)
    found = fit_plan(DEFAULT_MODEL, options, lambda _: None)["disk"]
    assert found["is_chosen"]
    if not found["is_direct"]:
        pytest.skip("no direct reads here")
    kept = read_size_for(disks_file(), DEFAULT_MODEL)
    assert kept == ReadSize(chunk_bytes=found["chunk_bytes"], depth=found["depth"])
    assert disks_file() == tmp_path / "edgert" / "disks.json"
    assert list((tmp_path / "edgert").iterdir()) == [disks_file()]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_load_under_a_budget_reads_so(is_streamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # What the program takes in tests is not known.
    program_bytes = 64 << 20
    monkeypatch.setattr(opening, "resident_bytes", lambda: program_bytes)
    planner = MemoryPlanner(
        model=open_model(DEFAULT_MODEL),
        base_bytes=program_bytes,
        threads=1,
        context=64,
        batch_tokens=None,
        kv_format="f16",
    )
    ram = planner.minimum_bytes() if is_streamed else 1 << 30
    used: list[tuple[str, ReadSize]] = []

    def record(name: str) -> None:
        plain = getattr(_core.WeightStore, name)

        def call(*arguments: Any, **named: Any) -> None:
            used.append((name, ReadSize(chunk_bytes=named["chunk_bytes"], depth=named["depth"])))
            plain(*arguments, **named)

        monkeypatch.setattr(_core.WeightStore, name, call)

    record("set_stream")
    record("start_loading")

    def answer() -> str:
        with edgert.load(DEFAULT_MODEL, ram=ram, context=64, threads=1) as llm:
            return llm.generate("Once", max_tokens=8, temperature=0).text

    names = ["set_stream", "start_loading"] if is_streamed else ["start_loading"]
    expected = answer()
    assert used == [(name, DEFAULT_READ_SIZE) for name in names]
    used.clear()
    keep_choice(disks_file(), measured(DEFAULT_MODEL))
    assert answer() == expected
    assert used == [(name, OTHER) for name in names]


def test_keys_and_values_on_disk_are_read_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what suits the disk on which they lie, not the model's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(read_size, "_disk_of", str)
    monkeypatch.setattr(_core, "KVSpill", lambda **named: named)
    space = KVSpace(memory_bytes=1 << 20, disk_bytes=1 << 20, ring_bytes=1 << 20)

    def used() -> ReadSize:
        spill: Any = space.spill()
        return ReadSize(chunk_bytes=spill["chunk_bytes"], depth=spill["depth"])

    keep_choice(disks_file(), measured(DEFAULT_MODEL, READ_SIZES[0]))
    assert used() == DEFAULT_READ_SIZE
    keep_choice(disks_file(), measured(tmp_path))
    assert used() == OTHER
