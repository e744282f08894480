"""Rates of memory and disk, and the profile that doctor shows."""

from pathlib import Path

import pytest

from edgert import _core
from edgert.device import disk
from edgert.device.bandwidth import thread_counts
from edgert.device.disk import measure_disk
from edgert.errors import DeviceError


@pytest.mark.parametrize(("most", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_thread_counts(most: int, counts: list[int]) -> None:
    assert thread_counts(most) == counts


def test_the_multiply_add_peak_is_that_of_a_machine() -> None:
    assert 1e8 < _core.fma_peak(1, repeats=1) < 1e12


def test_the_disk_rate_of_a_folder_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "SAMPLE_BYTES", 1 << 20)
    rate = measure_disk(tmp_path)
    assert rate.gb_per_s > 0
    assert rate.path == str(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_disk_rate_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    assert measure_disk(tmp_path / "file").gb_per_s > 0
    (tmp_path / "small").write_bytes(bytes(5000))
    assert measure_disk(tmp_path / "small").gb_per_s > 0
    (tmp_path / "tiny").write_bytes(bytes(4095))
    with pytest.raises(DeviceError, match="found a file of 4095 bytes, expected at least 4096"):
        measure_disk(tmp_path / "tiny")


def test_a_place_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"disk rate of .*nowhere: found .*, expected"):
        measure_disk(tmp_path / "nowhere")
