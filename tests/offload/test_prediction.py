"""Predictions and advice; the budget of --ram auto."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.offload import Placement
from edgert.offload.memory_budget import auto_budget
from edgert.offload.prediction import Candidate, advice, predict

GIB, MIB = 1 << 30, 1 << 20


def placement(streamed_bytes: int) -> Placement:
    return Placement(
        resident=(), lookups=(), neurons=(), pieces=(), lock_order=(), pool_bytes=0, ring_bytes=0, prefill_ring_bytes=0,
        expert_cache_bytes=0, neuron_cache_bytes=0, resident_bytes=0, scratch_bytes=0, locked_bytes=0,
        streamed_bytes_per_token=streamed_bytes, fits=streamed_bytes == 0,
    )  # fmt: skip


def test_a_token_takes_as_long_as_the_longer_of_reading_and_computing() -> None:
    disk = predict(placement(2_000_000_000), disk_bytes_per_s=1e9, compute_s=0.5)
    assert (disk.disk_s, disk.token_s, disk.tokens_per_s, disk.limit, disk.stall_share) == (2.0, 2.0, 0.5, "disk", 0.75)
    memory = predict(placement(100_000_000), disk_bytes_per_s=1e9, compute_s=0.5)
    assert (memory.disk_s, memory.token_s, memory.limit, memory.stall_share) == (0.1, 0.5, "memory", 0.0)
    assert predict(placement(0), disk_bytes_per_s=1e9, compute_s=0.5).disk_s == 0


def test_advice_is_one_sentence() -> None:
    more, fewer = Candidate("--ram 5GiB", 2.1), Candidate("--bits 3", 2.12)
    assert advice(0.78, 0.9, [more, fewer]) == (
        "78 % of the time waiting for the disk: --ram 5GiB or --bits 3 would give about 2.1 tok/s"
    )
    assert advice(0.78, 0.9, [more, Candidate("--bits 3", 30)]) == (
        "78 % of the time waiting for the disk: --ram 5GiB would give about 2.1 tok/s, "
        "--bits 3 would give about 30.0 tok/s"
    )
    assert advice(0.5, 2.0, [more]) == (
        "50 % of the time waiting for the disk: a faster disk, more memory or a smaller model would help"
    )
    assert advice(0.19, 0.9, [more, fewer]) is None


@pytest.mark.parametrize(
    ("total", "available", "cgroup", "expected"),
    [
        (16 * GIB, 12 * GIB, None, 12 * GIB - 16 * GIB // 10),  # a tenth of the machine
        (4 * GIB, 3 * GIB, None, 3 * GIB - 512 * MIB),
        (1 * GIB, 900 * MIB, None, 900 * MIB - 256 * MIB),  # a quarter of a small one
        (16 * GIB, 12 * GIB, 2 * GIB, 2 * GIB * 15 // 16),
        (4 * GIB, 300 * MIB, None, 0),
    ],
)
def test_the_budget_of_auto(total: int, available: int, cgroup: "int | None", expected: int) -> None:
    assert auto_budget(total, available, cgroup) == pytest.approx(expected, abs=1)


@given(st.integers(1 << 26, 1 << 42), st.floats(0, 1), st.none() | st.integers(0, 1 << 42))
def test_auto_leaves_room(total: int, share: float, cgroup: "int | None") -> None:
    available = int(total * share)
    budget = auto_budget(total, available, cgroup)
    assert budget >= 0
    assert budget == 0 or available - budget >= total // 10
    assert budget == 0 or total < 2 * GIB or available - budget >= 512 * MIB
    assert cgroup is None or budget <= cgroup
