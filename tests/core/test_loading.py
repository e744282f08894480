"""Weights that are read while the caller goes on: finished, stopped, failed."""

import gc
from pathlib import Path

import pytest

from edgert import _core
from edgert.errors import FileFormatError
from edgert.llm import DEFAULT_MODEL
from edgert.loader import finish_loading, open_model, start_loading

ROWS, COLS, MATRICES = 1024, 1024, 8


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "weights.bin"
    path.write_bytes(bytes(ROWS * COLS * 4 * MATRICES))
    return path


def make_store(path: Path) -> _core.WeightStore:
    store = _core.WeightStore()
    file = store.add_file(str(path))
    for i in range(MATRICES):
        store.add(f"w{i}", "f32", ROWS, COLS, [(file, i * ROWS * COLS * 4, ROWS * COLS * 4)])
    return store


def test_progress_ends_with_all_bytes(path: Path) -> None:
    store = make_store(path)
    store.start_loading(2)
    seen: list[tuple[int, int]] = []
    store.finish_loading(lambda done, total: seen.append((done, total)))
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert store.resident_bytes >= path.stat().st_size


def test_a_store_that_is_dropped_while_it_reads_leaves_no_thread(path: Path) -> None:
    tasks = Path("/proc/self/task")
    before = len(list(tasks.iterdir())) if tasks.is_dir() else 0
    for _ in range(20):
        make_store(path).start_loading(3)
    gc.collect()
    assert not tasks.is_dir() or len(list(tasks.iterdir())) <= before


def test_a_file_that_becomes_shorter_is_one_error_and_gives_the_memory_back(path: Path) -> None:
    store = make_store(path)
    with path.open("r+b") as file:
        file.truncate(ROWS * COLS * 4 * (MATRICES - 1))
    store.start_loading(2)
    with pytest.raises(OSError, match="became shorter"):
        store.finish_loading()
    assert store.resident_bytes == 0


def test_an_error_of_progress_stops_the_reading(path: Path) -> None:
    store = make_store(path)
    store.start_loading(1)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.finish_loading(interrupt)
    assert store.resident_bytes == 0


@pytest.mark.parametrize("format_name", ["q4_k", "q5_k"])
@pytest.mark.parametrize("part", ["subscale", "submin"])
def test_a_sub_scale_of_more_than_six_bits_is_refused(tmp_path: Path, format_name: str, part: str) -> None:
    """No packer writes one, and the bytes that matrix units multiply could not hold the product."""
    ranges, start, offset = [], 0, 0
    for name, num_bytes in _core.part_bytes(format_name, 32, 512):
        start = offset if name == part else start
        ranges.append((0, offset, num_bytes))
        offset += num_bytes
    for value in (63, 64, 255):
        content = bytearray(offset)
        content[start + 7] = value
        path = tmp_path / "parts"
        path.write_bytes(content)
        store = _core.WeightStore()
        store.add_file(str(path))
        store.add("w", format_name, 32, 512, ranges, is_packed=True)
        store.start_loading(1)
        if value == 63:
            store.finish_loading()
            continue
        with pytest.raises(_core.CoreError, match=f"w: found {value} in its {part}, expected 0 to 63"):
            store.finish_loading()
        assert store.resident_bytes == 0


def test_order_of_calls(path: Path) -> None:
    store = make_store(path)
    with pytest.raises(RuntimeError, match="found no reading to finish"):
        store.finish_loading()
    store.start_loading(1)
    with pytest.raises(_core.CoreError, match="added while weights are read"):
        store.add("late", "f32", 1, 1, [(0, 0, 4)])
    store.finish_loading()


def test_the_loader_names_the_model(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for source in DEFAULT_MODEL.iterdir():
        (folder / source.name).write_bytes(source.read_bytes())
    model = open_model(folder)
    store = _core.WeightStore()
    start_loading(model, store, threads=1)
    finish_loading(model, store)
    weights = folder / "model.safetensors"
    with weights.open("r+b") as file:
        file.truncate(weights.stat().st_size - 1)
    late = _core.WeightStore()
    with pytest.raises(FileFormatError, match=r"model.*cannot be loaded"):
        start_loading(model, late, threads=1)
