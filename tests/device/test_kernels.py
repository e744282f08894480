"""The choice of kernels: EDGERT_KERNEL, the verdict over measured passes, and the file that keeps choices."""

import json
import os
from pathlib import Path

import pytest

from edgert import _core
from edgert.device.isa import select_isa
from edgert.device.kernels import KernelChoice, add_choices, cache_file, read_choices, select_kernel
from edgert.errors import DeviceError


def choice(**changes: object) -> KernelChoice:
    values: dict[str, object] = {
        "isa": "scalar",
        "threads": 2,
        "format": "p4",
        "rows": 4096,
        "cols": 2048,
        "tokens": 4,
        "kernel": "dot",
        "seconds": {"dot": 1e-5, "lut": 2e-5},
    }
    return KernelChoice(**(values | changes))  # type: ignore[arg-type]


def test_every_kernel_can_be_forced_and_no_other() -> None:
    isa = select_isa({})
    assert {"dot", "float"} <= set(_core.kernel_names(isa))
    assert select_kernel(isa, {}) == select_kernel(isa, {"EDGERT_KERNEL": ""}) == ""
    for name in _core.kernel_names(isa):
        assert select_kernel(isa, {"EDGERT_KERNEL": name}) == name
    with pytest.raises(DeviceError, match=r"EDGERT_KERNEL: found 'magic'.*expected one of: .*dot"):
        select_kernel(isa, {"EDGERT_KERNEL": "magic"})


def test_kernels_of_lower_levels_compete_but_the_scalar_ones() -> None:
    levels = [name for name, is_built, is_supported in _core.isa_levels() if is_built and is_supported]
    for i, level in enumerate(levels):
        names = _core.kernel_names(level)
        assert {name.partition("/")[0] for name in names if "/" in name} <= set(levels[1:i])


@pytest.mark.parametrize(
    ("passes", "verdict"),
    [
        ([[1.0, 1.0, 1.0]], (0, True)),
        # 2 % is noise, 10 % in every pass is not.
        ([[1.0, 1.0, 1.0], [0.98, 0.98, 0.98]], (0, True)),
        ([[1.0, 1.0, 1.0], [0.9, 0.9, 0.9]], (1, True)),
        ([[1.0, 1.0, 1.0], [0.9, 0.9, 0.9], [0.8, 0.8, 0.8]], (2, True)),
        # A slower one that was given up after two passes.
        ([[1.0, 1.0, 1.0], [2.0, 2.0]], (0, True)),
        # The first guess was put aside in one pass: it keeps nothing by that, and loses nothing.
        ([[1.0, 9.0, 1.0, 1.0], [0.9, 0.9, 0.9, 0.9]], (1, True)),
        # One lucky pass wins nothing, and is not kept.
        ([[1.0, 1.0, 1.0, 1.0], [0.5, 2.0, 2.0, 2.0]], (0, False)),
        # The machine was busy: nearly every pass of the fastest was interrupted.
        ([[1.0, 4.0, 4.0, 4.0], [3.0, 3.0, 3.0, 3.0]], (0, False)),
    ],
)
def test_another_kernel_must_be_clearly_faster(passes: list[list[float]], verdict: tuple[int, bool]) -> None:
    assert _core.judge_passes(passes) == verdict


def test_choices_are_kept_beside_others(tmp_path: Path) -> None:
    path = tmp_path / "new" / "kernels.json"
    add_choices(path, [choice()])
    add_choices(path, [choice(rows=64), choice(kernel="lut")])
    assert sorted(read_choices(path), key=lambda c: c.rows) == [choice(rows=64), choice(kernel="lut")]
    assert [p.name for p in path.parent.iterdir()] == ["kernels.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\x00",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"edgert_kernels": 1, "build": 3, "choices": []}',
        b'{"edgert_kernels": 99}',
    ],
)
def test_a_broken_file_counts_as_empty_and_is_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "kernels.json"
    path.write_bytes(content)
    assert read_choices(path) == []
    add_choices(path, [choice()])
    assert read_choices(path) == [choice()]


@pytest.mark.parametrize(
    ("name", "value"),
    [("rows", 0), ("rows", 2**40), ("threads", "2"), ("kernel", 3), ("seconds", {"dot": "1"}), ("more", 1)],
)
def test_values_that_the_core_would_refuse_are_left_out(tmp_path: Path, name: str, value: object) -> None:
    path = tmp_path / "kernels.json"
    add_choices(path, [choice()])
    content = json.loads(path.read_text())
    content["choices"][0][name] = value
    path.write_text(json.dumps(content))
    assert read_choices(path) == []


def test_choices_of_another_build_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "kernels.json"
    add_choices(path, [choice()])
    path.write_text(path.read_text().replace('"build": "', '"build": "1'))
    assert read_choices(path) == []


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    add_choices(tmp_path / "file" / "kernels.json", [choice()])
    add_choices(None, [choice()])
    assert read_choices(None) == []


def test_where_the_file_lies(tmp_path: Path) -> None:
    path = cache_file({"XDG_CACHE_HOME": str(tmp_path)})
    assert path is not None
    assert path.parent == tmp_path / "edgert"
    assert path.name.startswith("kernels-")
    assert path.name.isascii()
    assert os.sep not in path.name
    assert cache_file({"XDG_CACHE_HOME": "relative"}) is None
