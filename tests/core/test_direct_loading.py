"""Weights that are read past the page cache: the same bytes in memory, the same errors, nothing left behind."""

import gc
import os
import random
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from seeds import draw_seed

from edgert import _core
from edgert.engine.memory_plan import RESERVE_BYTES

METHODS = ["uring", "threads", "buffered"]
SECTOR = 4096
# Bytes of q4_0's blocks of 32.
BLOCK = 18

Expected = dict[str, list[np.ndarray]]


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A way to read that works here."""
    probe = tmp_path / "probe"
    probe.write_bytes(bytes(SECTOR))
    try:
        _core.Reader([str(probe)], method=request.param).close()
    except OSError as error:
        pytest.skip(str(error))
    return str(request.param)


def draw() -> random.Random:
    return random.Random(draw_seed())


def make_weights(path: Path, rng: random.Random, largest: int = 400) -> tuple[_core.WeightStore, Expected]:
    """Weights of every kind, scattered over a file in another order than they are added, and their parts in memory."""
    numbers = np.random.default_rng(rng.randrange(2**32))
    content = bytearray(numbers.bytes(rng.randrange(1, 3 * SECTOR)))
    requests, expected = [], Expected()

    def put(data: np.ndarray) -> tuple[int, int, int]:
        content.extend(numbers.bytes(rng.choice([0, 0, rng.randrange(64), rng.randrange(3 * SECTOR)])))
        content.extend(bytes(-len(content) % 64) if rng.random() < 0.7 else b"")
        content.extend(data.tobytes())
        return 0, len(content) - data.nbytes, data.nbytes

    for i in range(40):
        rows, cols = rng.randrange(1, largest), 32 * rng.randrange(1, 20)
        name, kind = f"w{i}", rng.choice(["vector", "f32", "f16", "heads", "rows", "parts"])
        if kind == "vector":
            values = numbers.standard_normal(rows).astype(np.float16)
            requests.append((name, "f16", rows, 0, [put(values)], {}))
            expected[name] = [values.astype(np.float32)]
        elif kind in ("f32", "f16"):
            matrix = numbers.standard_normal((rows, cols)).astype(kind.replace("f", "float"))
            requests.append((name, kind, rows, cols, [put(matrix)], {}))
            expected[name] = [matrix]
        elif kind == "heads":
            heads, half = rng.randrange(1, 5), rng.randrange(1, 40)
            matrix = numbers.standard_normal((heads, half, 2, cols)).astype(np.float32)
            requests.append((name, "f32", heads * half * 2, cols, [put(matrix)], {"unpermute_heads": heads}))
            expected[name] = [matrix.swapaxes(1, 2)]
        elif kind == "rows":
            raw = numbers.integers(0, 256, (rows, cols // 32 * BLOCK), np.uint8)
            requests.append((name, "q4_0", rows, cols, [put(raw)], {}))
            expected[name] = _core.pack("q4_0", raw, cols)
        else:
            # Sub-scales have six bits.
            parts = [numbers.integers(0, 64, n, np.uint8) for _, n in _core.part_bytes("q4_k", rows, 256)]
            requests.append((name, "q4_k", rows, 256, [put(part) for part in parts], {"is_packed": True}))
            expected[name] = parts
    path.write_bytes(content)
    store = _core.WeightStore()
    store.add_file(str(path))
    rng.shuffle(requests)
    for name, format_name, rows, cols, ranges, options in requests:
        store.add(name, format_name, rows, cols, ranges, **options)
    return store, expected


def check(store: _core.WeightStore, expected: Expected) -> None:
    for name, parts in expected.items():
        for i, part in enumerate(parts):
            found = store.part(name, i)
            assert found.tobytes()[: part.nbytes] == part.tobytes(), (name, i)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("depth", "chunk_bytes"), [(1, SECTOR), (3, SECTOR * 5), (8, 1 << 20), (8, 2 << 20)])
def test_the_same_bytes(tmp_path: Path, method: str, threads: int, depth: int, chunk_bytes: int) -> None:
    store, expected = make_weights(tmp_path / "file", draw())
    store.start_loading(threads, True, method=method, depth=depth, chunk_bytes=chunk_bytes)
    seen: list[tuple[int, int]] = []
    store.finish_loading(lambda done, total: seen.append((done, total)))
    check(store, expected)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.parametrize("threads", [1, 3])
def test_the_same_bytes_through_the_page_cache(tmp_path: Path, threads: int) -> None:
    store, expected = make_weights(tmp_path / "file", draw(), largest=4000)
    store.start_loading(threads)
    store.finish_loading()
    check(store, expected)


def test_short_and_reversed_reads(tmp_path: Path) -> None:
    rng = draw()
    for num_short, short_bytes in ((3, 1), (8, 4096), (40, 60_000)):
        store, expected = make_weights(tmp_path / "file", rng)
        faults = _core.Faults(num_short=num_short, short_bytes=short_bytes, is_reversed=rng.random() < 0.5)
        store.start_loading(2, True, chunk_bytes=SECTOR * 16, faults=faults)
        store.finish_loading()
        check(store, expected)


@pytest.mark.parametrize("fail_at", [0, 1, 17])
def test_a_failed_read_is_one_error_and_gives_the_memory_back(tmp_path: Path, fail_at: int) -> None:
    path = tmp_path / "file"
    store, _ = make_weights(path, draw())
    store.start_loading(2, True, chunk_bytes=SECTOR * 16, faults=_core.Faults(fail_at=fail_at))
    with pytest.raises(OSError, match="file") as caught:
        store.finish_loading()
    assert str(caught.value) == f"{path}: {os.strerror(5)}"
    assert store.resident_bytes == 0


def test_a_file_that_becomes_shorter(tmp_path: Path, method: str) -> None:
    path = tmp_path / "file"
    store, _ = make_weights(path, draw())
    os.truncate(path, path.stat().st_size // 2)
    store.start_loading(2, True, method=method)
    with pytest.raises(OSError, match="became shorter while it was read"):
        store.finish_loading()
    assert store.resident_bytes == 0


def test_stopping_waits_for_what_is_under_way_only(tmp_path: Path) -> None:
    store, _ = make_weights(tmp_path / "file", draw())
    store.start_loading(2, True, depth=2, chunk_bytes=SECTOR, faults=_core.Faults(stall_at=3, stall_s=0.5))

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    began_s = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        store.finish_loading(interrupt)
    assert time.perf_counter() - began_s < 5
    assert store.resident_bytes == 0


def test_a_store_that_is_dropped_while_it_reads_leaves_no_thread(tmp_path: Path) -> None:
    tasks = Path("/proc/self/task")
    before = len(list(tasks.iterdir())) if tasks.is_dir() else 0
    for _ in range(20):
        make_weights(tmp_path / "file", draw(), largest=50)[0].start_loading(3, True)
    gc.collect()
    assert not tasks.is_dir() or len(list(tasks.iterdir())) <= before


def test_wrong_contents_are_one_error(tmp_path: Path, method: str) -> None:
    rows, cols, num_outliers = 32, 64, 5
    lengths = [n for _, n in _core.part_bytes("c4", rows, cols)]
    starts = struct.pack(f"<{rows + 1}I", *[0] * rows, num_outliers)
    columns, values = struct.pack("<5H", 1, 2, 3, 9, 7), bytes(2 * num_outliers)
    # The parts of outliers may lie anywhere.
    content = values + bytes(sum(lengths)) + starts + bytes(5000) + columns
    begins = np.cumsum([len(values), *lengths])
    (tmp_path / "file").write_bytes(content)
    store = _core.WeightStore()
    store.add_file(str(tmp_path / "file"))
    outliers = [
        (0, int(begins[-1]), len(starts)),
        (0, len(content) - len(columns), len(columns)),
        (0, 0, len(values)),
    ]
    parts = [(0, int(begin), n) for begin, n in zip(begins, lengths, strict=False)]
    store.add("w", "c4", rows, cols, parts, is_packed=True, outliers=outliers)
    store.start_loading(2, True, method=method)
    with pytest.raises(_core.CoreError, match="w: outliers of row 31: found column 7, expected ascending ones"):
        store.finish_loading()
    assert store.resident_bytes == 0


@pytest.mark.skipif(sys.platform != "linux", reason="what Linux says of a process")
def test_memory_beside_the_weights_is_bounded(tmp_path: Path) -> None:
    """Weights of 72 MiB that are packed on the way: 8 reads of 1 MiB, one of each thread, what the ring needs."""
    path, rows, cols = tmp_path / "file", 1 << 13, 4096
    with path.open("wb") as file:
        file.truncate(4 * rows * cols // 32 * BLOCK)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here on
    before = peak_bytes()
    store = _core.WeightStore()
    store.add_file(str(path))
    length = rows * cols // 32 * BLOCK
    for i in range(4):
        store.add(f"w{i}", "q4_0", rows, cols, [(0, i * length, length)])
    store.start_loading(2, True)
    store.finish_loading()
    assert peak_bytes() - before <= store.resident_bytes + (16 << 20)


def peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="what Linux says of a process")
def test_the_ring_of_the_largest_requests_is_less_than_the_reserve(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(os.urandom(64 << 20))
    # By itself: the most memory that a process had is not forgotten.
    script = f"""
import re
from edgert import _core
from edgert.engine.memory_plan import RESERVE_BYTES
from edgert.device.read_size import READ_SIZES

def peak_bytes():
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1]) << 10

largest = max(READ_SIZES, key=lambda size: (size.chunk_bytes * size.depth, size.chunk_bytes))
store = _core.WeightStore()
store.add_file({str(tmp_path / "file")!r})
store.add("weight", "f32", 4096, 4096, [(0, 0, 64 << 20)])
before = peak_bytes()
# Whose ring would be larger than the file.
store.start_loading(64, True, chunk_bytes=largest.chunk_bytes, depth=largest.depth)
store.finish_loading()
print(peak_bytes() - before - store.resident_bytes)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    # Of 64 threads each has touched some of its stack.
    assert int(done.stdout) < RESERVE_BYTES + (64 << 14)
