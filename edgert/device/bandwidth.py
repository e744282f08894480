"""How fast memory is read: the limit of decoding."""

from __future__ import annotations

from collections.abc import Sequence

from edgert import _core
from edgert.device.memory import available_bytes

# Beyond the caches of most machines; less where memory is short.
SAMPLE_BYTES = 1 << 30


def measure_bandwidth(threads: int, *, repeats: int = 5) -> float:
    """GB/s (10**9 bytes) of reading a large buffer once with that many threads: the median of the repeats."""
    num_bytes = max(1 << 26, min(SAMPLE_BYTES, available_bytes() // 4))
    return _core.read_bandwidth(threads, num_bytes, repeats) / 1e9


def bandwidth_by_threads(counts: Sequence[int]) -> dict[int, float]:
    """measure_bandwidth for each number of threads."""
    return {threads: measure_bandwidth(threads) for threads in counts}


def thread_counts(most: int) -> list[int]:
    """1, 2, 4, ... and the most: the counts worth measuring."""
    return sorted({*(1 << i for i in range(most.bit_length()) if 1 << i <= most), most})
