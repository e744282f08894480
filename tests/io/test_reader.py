"""The background reader against the file's own bytes: every method, real threads, a disk that misbehaves."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from page_cache import resident_pages

from edgert import _core

SECTOR = 4096
MIB = 1 << 20
METHODS = ("uring", "threads", "buffered")
WAIT_S = 30.0  # far longer than anything takes


def make_file(path: Path, num_bytes: int, seed: int | None = None) -> bytes:
    seed = random.randrange(2**32) if seed is None else seed
    print(f"seed {seed}")
    data = random.Random(seed).randbytes(num_bytes)
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())  # dirty pages would be dropped from no cache
    return data


@contextlib.contextmanager
def opened(*paths: Path, **options: object) -> Iterator[_core.Reader]:
    try:
        reader = _core.Reader([str(path) for path in paths], **options)  # type: ignore[arg-type]
    except OSError as e:
        if options.get("method") in ("uring", "threads"):
            pytest.skip(f"{options['method']}: the system refuses it here ({e})")
        raise
    try:
        yield reader
    finally:
        reader.close()


def wait_for(reader: _core.Reader, num_ends: int) -> dict[int, tuple[str, str]]:
    """Outcome and error of `num_ends` reads; each must be told once."""
    ends: list[tuple[int, str, str]] = []
    deadline = time.monotonic() + WAIT_S
    while len(ends) < num_ends and time.monotonic() < deadline:
        ends += reader.wait(num_ends - len(ends), 1.0)
    assert len(ends) == num_ends
    outcomes = {tag: (outcome, error) for tag, outcome, error in ends}
    assert len(outcomes) == num_ends
    return outcomes


def random_ranges(rng: random.Random, file_bytes: int, count: int) -> list[tuple[int, int]]:
    ranges = [(0, file_bytes), (file_bytes - 1, 1), (0, 1), (SECTOR, SECTOR), (SECTOR - 1, 2), (file_bytes, 0)]
    while len(ranges) < count:
        length = min(int(2 ** rng.uniform(0, 22)), file_bytes)
        offset = rng.choice([rng.randint(0, file_bytes - length), file_bytes - length])
        ranges.append((offset, length))
    return ranges


def check_ranges(reader: _core.Reader, data: bytes, ranges: list[tuple[int, int]]) -> None:
    for tag, (offset, length) in enumerate(ranges):
        reader.submit(tag, offset=offset, length=length)
    outcomes = wait_for(reader, len(ranges))
    assert set(outcomes.values()) == {("complete", "")}
    for tag, (offset, length) in enumerate(ranges):
        assert reader.take(tag) == data[offset : offset + length], (offset, length)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("depth", "chunk_bytes"), [(1, SECTOR * 16), (3, SECTOR * 5), (8, MIB), (64, SECTOR)])
def test_ranges_are_the_files_bytes(tmp_path: Path, method: str, depth: int, chunk_bytes: int) -> None:
    path = tmp_path / "file"
    data = make_file(path, 5 * MIB + 1234)
    ranges = random_ranges(random.Random(len(data) + depth), len(data), 60)
    with opened(path, method=method, depth=depth, chunk_bytes=chunk_bytes) as reader:
        assert reader.method == method
        check_ranges(reader, data, ranges)


def test_automatic_works_on_any_file_system(tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = make_file(path, 100_001)
    with opened(path) as reader:
        assert reader.method in METHODS
        check_ranges(reader, data, random_ranges(random.Random(1), len(data), 20))


REFUSED_RING = """
import ctypes, sys
from edgert import _core
class Filter(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32)]
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("filters", ctypes.POINTER(Filter))]
# Load the call's number; EPERM if it is io_uring_setup, else allow.
filters = (Filter * 4)((0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000))
prctl = ctypes.CDLL(None).prctl
prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
if prctl(38, 1, 0, 0, 0) or prctl(22, 2, ctypes.addressof(Program(4, filters)), 0, 0):
    sys.exit("no filters")
print(_core.Reader(sys.argv[1:]).method)
try:
    _core.Reader(sys.argv[1:], method="uring")
except OSError as e:
    print(e.errno)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="io_uring")
def test_a_kernel_that_refuses_rings(tmp_path: Path) -> None:
    path = tmp_path / "file"
    make_file(path, 10_000)
    with opened(path, method="uring"), opened(path, method="threads"):
        pass
    result = subprocess.run(
        [sys.executable, "-c", REFUSED_RING, str(path)], capture_output=True, text=True, check=False
    )
    if result.stderr == "no filters\n":
        pytest.skip("the system allows no filter of system calls")
    assert result.stdout.split() == ["threads", str(errno.EPERM)], result.stderr


def test_several_files(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    data = [make_file(path, 300_000 + i) for i, path in enumerate(paths)]
    with opened(*paths) as reader:
        for tag in (0, 1):
            reader.submit(tag, file=tag, offset=77, length=200_000)
        wait_for(reader, 2)
        assert [reader.take(tag) for tag in (0, 1)] == [d[77:200_077] for d in data]


@pytest.mark.parametrize("method", METHODS)
def test_counters_and_trace_are_the_windows(tmp_path: Path, method: str) -> None:
    path = tmp_path / "file"
    data = make_file(path, 3 * MIB + 100)
    ranges = random_ranges(random.Random(2), len(data), 30)
    windows = [(o // SECTOR * SECTOR, min(-(-(o + n) // SECTOR) * SECTOR, len(data))) for o, n in ranges if n]
    begin = time.monotonic()
    with opened(path, method=method, depth=4, chunk_bytes=SECTOR * 16) as reader:
        reader.start_trace()
        check_ranges(reader, data, ranges)
        num_reads, num_bytes, busy_s = reader.counters()
        events = reader.stop_trace()
        assert reader.is_idle
    elapsed_s = time.monotonic() - begin
    assert num_bytes == sum(end - start for start, end in windows) == sum(event[3] for event in events)
    assert num_reads == sum(-(-(end - start) // (SECTOR * 16)) for start, end in windows) == len(events)
    assert 0 < busy_s < elapsed_s
    assert all(begin < event[1] < event[2] < begin + elapsed_s for event in events)
    # Small requests are more than four at a time, of no more bytes than four large ones.
    moments = sorted([(e[1], 1, e[3]) for e in events] + [(e[2], -1, -e[3]) for e in events])
    counts, sizes = np.cumsum([step for _, step, _ in moments]), np.cumsum([size for *_, size in moments])
    assert 4 < counts.max() <= 32
    assert SECTOR * 16 < sizes.max() <= 4 * SECTOR * 16


@pytest.mark.skipif(sys.platform != "linux", reason="mincore and posix_fadvise as Linux has them")
@pytest.mark.parametrize("method", METHODS)
def test_nothing_stays_in_the_page_cache(tmp_path: Path, method: str) -> None:
    path = tmp_path / "file"
    data = make_file(path, 8 * MIB)
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if resident_pages(path) != 0:
        pytest.skip("the file system keeps its files in memory")
    with opened(path, method=method, chunk_bytes=SECTOR * 40) as reader:
        check_ranges(reader, data, [(0, len(data))])
        assert resident_pages(path) == 0


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize(("num_short", "short_bytes"), [(3, 1), (3, 511), (8, SECTOR), (20, 60_000), (5, 10**9)])
def test_short_reads_go_on(tmp_path: Path, num_short: int, short_bytes: int, is_reversed: bool) -> None:
    path = tmp_path / "file"
    data = make_file(path, 3 * MIB + 77)
    faults = _core.Faults(num_short=num_short, short_bytes=short_bytes, is_reversed=is_reversed)
    with opened(path, depth=4, chunk_bytes=SECTOR * 32, faults=faults) as reader:
        check_ranges(reader, data, random_ranges(random.Random(short_bytes), len(data), 20))


def test_a_short_read_asks_for_its_rest_only(tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = make_file(path, MIB)
    faults = _core.Faults(num_short=2, short_bytes=SECTOR)
    with opened(path, depth=1, chunk_bytes=SECTOR * 32, faults=faults) as reader:
        reader.start_trace()
        check_ranges(reader, data, [(0, SECTOR * 64)])
        # The rest of one sector comes short too (one byte at least), and is asked for again.
        assert [event[3] for event in reader.stop_trace()] == [SECTOR * 31, 1, SECTOR, SECTOR * 32]


def test_a_disk_that_never_gives_all_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    make_file(path, MIB)
    with opened(path, faults=_core.Faults(num_short=10**9, short_bytes=1)) as reader:
        reader.submit(0, offset=0, length=MIB)
        assert wait_for(reader, 1) == {0: ("failed", f"{path}: became shorter while it was read")}


def test_a_failed_chunk_ends_its_read_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = make_file(path, MIB)
    with opened(path, depth=1, chunk_bytes=SECTOR * 16, faults=_core.Faults(fail_at=2)) as reader:
        reader.submit(0, offset=0, length=SECTOR * 16 * 5)
        reader.submit(1, offset=5, length=1000)
        outcomes = wait_for(reader, 2)
        assert outcomes == {0: ("failed", f"{path}: {os.strerror(errno.EIO)}"), 1: ("complete", "")}
        assert reader.take(1) == data[5:1005]
        assert reader.counters()[0] == 4  # three of the first: its rest was dropped


def test_a_failed_read_ends_when_nothing_of_it_is_under_way(tmp_path: Path) -> None:
    path = tmp_path / "file"
    make_file(path, MIB)
    faults = _core.Faults(fail_at=0, stall_at=1, stall_s=0.3)
    with opened(path, depth=2, chunk_bytes=SECTOR * 16, faults=faults) as reader:
        begin = time.monotonic()
        reader.submit(0, offset=0, length=MIB)
        assert wait_for(reader, 1)[0][0] == "failed"
        assert time.monotonic() - begin >= 0.3
        assert reader.counters()[0] == 2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("left", [SECTOR * 10, SECTOR * 10 + 300, 0])
def test_a_truncated_file(tmp_path: Path, method: str, left: int) -> None:
    path = tmp_path / "file"
    data = make_file(path, MIB)
    with opened(path, method=method, chunk_bytes=SECTOR * 16) as reader:
        os.truncate(path, left)
        reader.submit(0, offset=100, length=MIB - 100)
        reader.submit(1, offset=left, length=1)
        assert set(wait_for(reader, 2).values()) == {("failed", f"{path}: became shorter while it was read")}
        check_ranges(reader, data, [(0, left), (left // 2, left - left // 2)])


@pytest.mark.parametrize("method", METHODS)
def test_a_replaced_file_gives_the_old_bytes(tmp_path: Path, method: str) -> None:
    path = tmp_path / "file"
    data = make_file(path, MIB)
    with opened(path, method=method) as reader:
        make_file(tmp_path / "other", MIB)
        os.replace(tmp_path / "other", path)
        check_ranges(reader, data, [(0, MIB)])


def test_a_stall_delays_only_its_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = make_file(path, 2 * MIB)
    with opened(path, depth=2, chunk_bytes=SECTOR * 16, faults=_core.Faults(stall_at=0, stall_s=2)) as reader:
        begin = time.monotonic()
        for tag in range(20):
            reader.submit(tag, offset=tag * 1000, length=100_000)
        outcomes = wait_for(reader, 19)
        others_s = time.monotonic() - begin
        assert 0 not in outcomes
        outcomes |= wait_for(reader, 1)
        assert others_s < 1.5
        assert 2 <= time.monotonic() - begin < 3
        assert set(outcomes.values()) == {("complete", "")}
        assert all(reader.take(tag) == data[tag * 1000 : tag * 1000 + 100_000] for tag in range(20))


def test_urgent_reads_overtake_what_has_not_begun(tmp_path: Path) -> None:
    path = tmp_path / "file"
    make_file(path, MIB)
    chunk = SECTOR * 16
    with opened(path, depth=1, chunk_bytes=chunk, faults=_core.Faults(stall_at=0, stall_s=0.3)) as reader:
        reader.start_trace()
        reader.submit(0, offset=0, length=3 * chunk)  # its second and third chunk have not begun
        time.sleep(0.1)
        for tag, priority in enumerate(["predicted", "planned", "demand", "demand", "planned", "predicted"], 1):
            reader.submit(tag, offset=0, length=chunk, priority=priority)
        reader.set_priority(5, "predicted")
        reader.set_priority(6, "demand")
        reader.set_priority(99, "demand")
        wait_for(reader, 7)
        events = reader.stop_trace()
    assert [event[0] for event in events] == [0, 3, 4, 6, 0, 0, 2, 1, 5]
    assert [event[4] for event in events] == [1, 0, 0, 0, 1, 1, 1, 2, 2]


def test_a_thousand_cancelled_reads_end_at_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = make_file(path, 2 * MIB)
    took_s = []
    for _ in range(3):  # a busy machine may take longer, now and then
        with opened(path, depth=4, limit_bytes_per_s=10_000_000) as reader:
            for tag in range(1000):
                reader.submit(tag, offset=tag, length=MIB)
            time.sleep(0.3)
            begin = time.monotonic()
            reader.cancel_all()
            outcomes = wait_for(reader, 1000)
            took_s.append(time.monotonic() - begin)
            complete = [tag for tag, (outcome, _) in outcomes.items() if outcome == "complete"]
            assert 1 <= len(complete) < 10
            assert {outcomes[tag] for tag in set(outcomes) - set(complete)} == {("cancelled", "")}
            assert all(reader.take(tag) == data[tag : tag + MIB] for tag in complete)
            assert reader.wait(1, 0.1) == []
            assert reader.is_idle
    assert min(took_s) < 0.05


def test_cancelled_reads_that_are_under_way(tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = make_file(path, MIB)
    chunk = SECTOR * 16
    with opened(path, depth=2, chunk_bytes=chunk, faults=_core.Faults(stall_at=0, stall_s=0.3)) as reader:
        reader.submit(0, offset=0, length=chunk)  # all of it is under way: it arrives
        time.sleep(0.1)
        reader.submit(1, offset=chunk, length=chunk)
        reader.cancel(77)
        assert wait_for(reader, 1) == {1: ("complete", "")}
        reader.cancel(0)
        reader.cancel(1)
        assert wait_for(reader, 1) == {0: ("complete", "")}
        assert reader.take(0) == data[:chunk]
    with opened(path, depth=1, chunk_bytes=chunk, faults=_core.Faults(stall_at=0, stall_s=0.3)) as reader:
        reader.submit(0, offset=0, length=2 * chunk)
        time.sleep(0.1)
        reader.cancel(0)
        assert wait_for(reader, 1) == {0: ("cancelled", "")}
        assert reader.counters()[0] == 1


@pytest.mark.parametrize("limit", [100_000_000, 20_000_000])
def test_the_rate_limit_is_kept(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "file"
    make_file(path, 25_000_000)
    ratios = []
    for _ in range(3):  # a busy machine may be slower than the limit, now and then
        with opened(path, limit_bytes_per_s=limit) as reader:
            num_reads = max(limit // 20_000_000, 1)
            reader.start_trace()
            begin = time.monotonic()
            for tag in range(num_reads):
                reader.submit(tag, offset=0, length=20_000_000)
            wait_for(reader, num_reads)
            elapsed_s = time.monotonic() - begin
            ratios.append(num_reads * 20_000_000 / elapsed_s / limit)
            assert max(event[3] for event in reader.stop_trace()) <= limit / 100
            # What was not asked for in a pause is not made up for afterwards.
            time.sleep(0.2)
            begin = time.monotonic()
            reader.submit(99, offset=0, length=limit // 20)
            wait_for(reader, 1)
            assert time.monotonic() - begin > 0.035
        if ratios[-1] > 0.97:
            break
    print(ratios)
    assert max(ratios) < 1.03
    assert max(ratios) > 0.97


@pytest.mark.parametrize("method", METHODS)
def test_an_idle_reader_uses_no_processor(tmp_path: Path, method: str) -> None:
    path = tmp_path / "file"
    data = make_file(path, MIB)
    with opened(path, method=method) as reader, opened(path, method=method, limit_bytes_per_s=100_000) as slow:
        slow.submit(0, offset=0, length=MIB)
        check_ranges(reader, data, [(0, MIB)])
        begin_s = time.process_time()
        time.sleep(0.5)
        assert time.process_time() - begin_s < 0.05


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors and threads in /proc")
@pytest.mark.parametrize("method", METHODS)
def test_a_thousand_readers_leave_nothing_behind(tmp_path: Path, method: str) -> None:
    path = tmp_path / "file"
    make_file(path, MIB)

    def counts() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    before = counts()
    closing_s = []
    for _ in range(1000):
        with opened(path, method=method, depth=4) as reader:
            for tag in range(3):
                reader.submit(tag, offset=tag, length=100_000)
            begin = time.monotonic()
            reader.close()
            closing_s.append(time.monotonic() - begin)
    deadline = time.monotonic() + 5  # a thread that was joined may be seen in /proc a moment longer
    while counts() != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert counts() == before
    assert sorted(closing_s)[-5] < 0.2  # the machine may stop a few of them


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    make_file(path, 10)
    wrong: list[dict[str, int]] = [{"depth": 0}, {"chunk_bytes": 5000}, {"chunk_bytes": 0}, {"limit_bytes_per_s": -1}]
    for options in wrong:
        with pytest.raises(_core.CoreError, match=next(iter(options))):
            _core.Reader([str(path)], **options)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="missing"):
        _core.Reader([str(tmp_path / "missing")])
