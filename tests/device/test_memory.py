"""Memory and CPU limits, from the files that the kernel shows."""

from pathlib import Path

import pytest

from edgert.device.memory import (
    available_bytes,
    cgroup_available_bytes,
    cgroup_folders,
    grants_huge_pages,
    huge_pages,
    total_bytes,
)
from edgert.device.threads import cpu_quota, default_threads, physical_cores, usable_cpus


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_the_tightest_limit_of_all_parents_counts(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "own": "0::/a/b\n",
            "fs/a/memory.max": "1000\n",
            "fs/a/memory.current": "400\n",
            "fs/a/memory.stat": "anon 100\ninactive_file 50\n",
            "fs/a/b/memory.max": "max\n",
            "fs/a/b/memory.current": "300\n",
        },
    )
    assert cgroup_available_bytes(tmp_path / "fs", tmp_path / "own") == 650


def test_a_group_over_its_limit_has_nothing_left(tmp_path: Path) -> None:
    write(tmp_path, {"own": "0::/\n", "fs/memory.max": "100\n", "fs/memory.current": "120\n"})
    assert cgroup_available_bytes(tmp_path / "fs", tmp_path / "own") == 0


def test_version_1(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "own": "9:name=systemd:/x\n5:memory:/docker/1\n3:cpu,cpuacct:/docker/1\n",
            "fs/memory/memory.limit_in_bytes": f"{2**63 - 4096}\n",
            "fs/memory/memory.usage_in_bytes": "5\n",
            "fs/memory/docker/1/memory.limit_in_bytes": "2000\n",
            "fs/memory/docker/1/memory.usage_in_bytes": "500\n",
            "fs/memory/docker/1/memory.stat": "total_inactive_file 100\n",
            "fs/cpu/docker/1/cpu.cfs_quota_us": "150000\n",
            "fs/cpu/docker/1/cpu.cfs_period_us": "100000\n",
        },
    )
    assert cgroup_available_bytes(tmp_path / "fs", tmp_path / "own") == 1600
    assert cpu_quota(cgroup_folders(tmp_path / "fs", tmp_path / "own")) == 2


def test_without_limits_or_files(tmp_path: Path) -> None:
    assert cgroup_available_bytes(tmp_path / "fs", tmp_path / "own") is None
    write(tmp_path, {"own": "0::/a\n", "fs/a/memory.max": "max\n", "fs/a/memory.current": "7\n"})
    assert cgroup_available_bytes(tmp_path / "fs", tmp_path / "own") is None


@pytest.mark.parametrize(
    ("text", "cpus"), [("max 100000", 2**16), ("200000 100000", 2), ("50000 100000", 1), ("", 2**16)]
)
def test_cpu_quota(tmp_path: Path, text: str, cpus: int) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert cpu_quota([tmp_path]) == cpus


def test_this_machine() -> None:
    assert 0 < available_bytes() <= total_bytes()
    assert 1 <= default_threads() <= usable_cpus()
    assert huge_pages() in ("always", "madvise", "never", "unknown")
    # Granted or not is the kernel's affair, but it must follow the setting.
    assert grants_huge_pages() in ((False,) if huge_pages() == "never" else (True, False, None))


def test_the_machine_is_read_as_psutil_reads_it(tmp_path: Path) -> None:
    psutil = pytest.importorskip("psutil")
    assert total_bytes() == psutil.virtual_memory().total
    assert physical_cores() == (psutil.cpu_count(logical=False) or usable_cpus())
    # Two cores with two threads each; without a topology psutil is asked.
    write(tmp_path, {f"cpu{i}/topology/core_cpus_list": f"{i % 2},{i % 2 + 2}\n" for i in range(4)})
    assert physical_cores(tmp_path) == 2
    assert physical_cores(tmp_path / "empty") == (psutil.cpu_count(logical=False) or usable_cpus())
