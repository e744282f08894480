"""Conversions that are stopped: nothing opens that is not whole, nothing is left that the next run does not remove.

EDGERT_TEST_KILLS (default 4) is the number of random moments, EDGERT_TEST_FULL_DISKS (default 2) of disk sizes; the
seed is EDGERT_TEST_SEED.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from edgert.convert import convert, pipeline
from edgert.errors import ConvertError, EdgertError
from edgert.files import open_checkpoint
from edgert.quant.partial_folder import PartialFolder

from .conftest import MOE, SEED, write_folder

KILLS = int(os.environ.get("EDGERT_TEST_KILLS", "4"))
FULL_DISKS = int(os.environ.get("EDGERT_TEST_FULL_DISKS", "2"))
BIG = MOE | {"hidden_size": 256, "moe_intermediate_size": 256, "num_experts": 8, "vocab_size": 2000}

# Slow enough to be hit in the middle: a pause after every chunk of rows.
CHILD = """
import sys, time
from edgert.convert import convert, pipeline
pipeline._CHUNK_VALUES = 1 << 15
pipeline._check_free_space = lambda *_: None
def progress(done, total):
    print(done, total, flush=True)
    time.sleep(float(sys.argv[3]))
convert(sys.argv[1], sys.argv[2], quant="p4", progress=progress)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return write_folder(tmp_path_factory.mktemp("source") / "model", BIG, "float16").path


def start(source: Path, target: Path, pause_s: float = 0.01) -> subprocess.Popen[str]:
    """A conversion in another process that has begun to write."""
    command = [sys.executable, "-c", CHILD, str(source), str(target), str(pause_s)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline()
    return child


def left_behind(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_nothing_opens(folder: Path) -> None:
    """No folder or file in here opens as a model."""
    for path in [p for p in folder.rglob("*") if p.is_dir() or p.suffix == ".safetensors"]:
        with pytest.raises(EdgertError):
            open_checkpoint(path)


def assert_whole(target: Path, expected: bytes) -> None:
    assert (target / "model.safetensors").read_bytes() == expected
    open_checkpoint(target)


def test_kill_at_random_moments(source, tmp_path):
    rng = np.random.default_rng(SEED)
    print(f"EDGERT_TEST_SEED={SEED} EDGERT_TEST_KILLS={KILLS}")
    convert(source, tmp_path / "whole", quant="p4")
    expected = (tmp_path / "whole/model.safetensors").read_bytes()
    began = time.monotonic()
    assert start(source, tmp_path / "timed").wait() == 0
    duration_s = time.monotonic() - began
    target = tmp_path / "here/out"
    target.parent.mkdir()
    stopped = 0
    for _ in range(KILLS):
        child = start(source, target)
        # Beyond the end, too: the header, the small files and the rename are killed as well.
        time.sleep(float(rng.uniform(0, duration_s)))
        child.kill()
        child.communicate()
        if target.exists():
            assert_whole(target, expected)
            assert left_behind(target.parent) == ["out"]
            for file in target.iterdir():
                file.unlink()
            target.rmdir()
        else:
            stopped += 1
            assert left_behind(target.parent) == [".out.partial"]
            if not (target.parent / ".out.partial/config.json").exists():
                assert_nothing_opens(target.parent)
    assert stopped or KILLS < 4
    convert(source, target, quant="p4")
    assert_whole(target, expected)
    assert left_behind(target.parent) == ["out"], "the next conversion removes what a killed one left"


def test_ctrl_c_leaves_nothing(source, tmp_path):
    child = start(source, tmp_path / "out", 0.05)
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert child.returncode != 0 and "KeyboardInterrupt" in errors
    assert left_behind(tmp_path) == []


def test_an_error_in_the_middle_leaves_nothing(source, tmp_path):
    def fail(done: int, total: int) -> None:
        if done > total // 2:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        convert(source, tmp_path / "out", quant="p4", progress=fail)
    assert left_behind(tmp_path) == []


def test_a_second_conversion_to_the_same_name_is_refused(source, tmp_path):
    child = start(source, tmp_path / "out", 0.05)
    try:
        with pytest.raises(ConvertError, match="running conversion"):
            convert(source, tmp_path / "out", quant="p4")
    finally:
        child.kill()
        child.communicate()
    convert(source, tmp_path / "out", quant="p4")


def test_a_target_made_meanwhile_is_not_replaced(source, tmp_path):
    target = tmp_path / "out"

    def interfere(done: int, total: int) -> None:
        target.mkdir(exist_ok=True)
        (target / "precious").write_text("x")

    with pytest.raises(ConvertError, match="expected a new name"):
        convert(source, target, quant="p4", progress=interfere)
    assert left_behind(tmp_path) == ["out"] and left_behind(target) == ["precious"]


def test_too_little_space_is_said_before_writing(source, tmp_path, monkeypatch):
    class Usage:
        free = 1000

    monkeypatch.setattr(pipeline.shutil, "disk_usage", lambda _: Usage)
    with pytest.raises(ConvertError, match="found 1,000 bytes free"):
        convert(source, tmp_path / "out", quant="p4")
    assert left_behind(tmp_path) == []


def test_a_file_size_limit_is_a_convert_error(source, tmp_path):
    """Where a disk cannot be filled, a limit on the size of a file fails in the same place."""
    code = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]), int(sys.argv[4])))\n"
        "from edgert.convert import convert\n"
        "from edgert.errors import ConvertError\n"
        "try:\n    convert(sys.argv[1], sys.argv[2], quant='p4')\n"
        "except ConvertError as error:\n    print(error); sys.exit(7)\n"
    )
    for limit in (1, 100_000, 1_000_000):
        command = [sys.executable, "-c", code, str(source), str(tmp_path / "out"), "0", str(limit)]
        child = subprocess.run(command, capture_output=True, text=True)
        assert child.returncode == 7, child.stderr
        assert "nothing was written" in child.stdout
        assert left_behind(tmp_path) == []


@pytest.fixture
def small_disk(tmp_path):
    """small_disk(num_bytes) -> folder on a tmpfs of that size."""
    mounted: list[Path] = []

    def mount(num_bytes: int) -> Path:
        place = tmp_path / f"disk{len(mounted)}"
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={num_bytes}", "tmpfs", str(place)]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            pytest.skip(f"cannot mount a tmpfs: {error}")
        if done.returncode:
            pytest.skip(f"cannot mount a tmpfs (needs root): {done.stderr.strip()}")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_leaves_nothing(source, tmp_path, small_disk, monkeypatch):
    rng = np.random.default_rng(SEED)
    print(f"EDGERT_TEST_SEED={SEED} EDGERT_TEST_FULL_DISKS={FULL_DISKS}")
    needed = convert(source, tmp_path / "whole", quant="p4").file_bytes
    monkeypatch.setattr(pipeline, "_check_free_space", lambda *_: None)
    for share in rng.uniform(0.0, 0.98, FULL_DISKS):
        disk = small_disk(max(4096, int(needed * share) // 4096 * 4096))
        with pytest.raises(ConvertError, match="No space left"):
            convert(source, disk / "out", quant="p4")
        assert left_behind(disk) == [], f"share {share}"
    disk = small_disk(2 * needed)
    convert(source, disk / "out", quant="p4")
    open_checkpoint(disk / "out")


def test_a_folder_without_its_end_does_not_open(source, tmp_path):
    """What a killed conversion leaves, at every stage before the last file."""
    with PartialFolder(tmp_path / "out") as folder:
        assert_nothing_opens(tmp_path)
        (folder.path / "model.safetensors").write_bytes(bytes(100_000))
        assert_nothing_opens(tmp_path)
        folder.write_text("config.json", "{}")
        assert_nothing_opens(tmp_path)
    assert left_behind(tmp_path) == []
