"""What a placement will give: the time of a token, what limits it, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .placement import Placement

# Less waiting, or less gain, is not worth a sentence.
MIN_STALL_SHARE = 0.2
MIN_GAIN = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Seconds of a token: the disk reads while the cores compute, so it takes as long as the longer of the two."""

    disk_s: float
    compute_s: float

    @property
    def token_s(self) -> float:
        return max(self.disk_s, self.compute_s)

    @property
    def tokens_per_s(self) -> float:
        return 1 / self.token_s

    @property
    def limit(self) -> Literal["disk", "memory"]:
        """Which of the two is longer; computing a token takes as long as reading its weights from memory."""
        return "disk" if self.disk_s > self.compute_s else "memory"

    @property
    def stall_share(self) -> float:
        """Share of the time that is spent waiting for the disk."""
        return 1 - self.compute_s / self.token_s


@dataclass(frozen=True, slots=True)
class Candidate:
    """Another way to run the model: its option ("--ram 5GiB"), and the rate that it would have."""

    option: str
    tokens_per_s: float


def predict(placement: Placement, *, kv_disk_bytes: int = 0, disk_bytes_per_s: float, compute_s: float) -> Prediction:
    """The time of a token. kv_disk_bytes: keys and values on disk, which each token reads. compute_s: of a token whose
    weights all are in memory."""
    read_bytes = placement.streamed_bytes_per_token + kv_disk_bytes
    return Prediction(disk_s=read_bytes / disk_bytes_per_s, compute_s=compute_s)


def advice(stall_share: float, tokens_per_s: float, candidates: Sequence[Candidate]) -> str | None:
    """One sentence on waiting for the disk, with the candidates that are faster; None where it hardly waits."""
    if stall_share < MIN_STALL_SHARE:
        return None
    waits = f"{100 * stall_share:.0f} % of the time waiting for the disk"
    by_rate: dict[str, list[str]] = {}
    for candidate in candidates:
        if candidate.tokens_per_s >= MIN_GAIN * tokens_per_s:
            by_rate.setdefault(_rate(candidate.tokens_per_s), []).append(candidate.option)
    if not by_rate:
        return f"{waits}: a faster disk, more memory or a smaller model would help"
    offers = [f"{' or '.join(names)} would give about {rate} tok/s" for rate, names in by_rate.items()]
    return f"{waits}: {', '.join(offers)}"


def _rate(tokens_per_s: float) -> str:
    return f"{tokens_per_s:.{0 if tokens_per_s >= 100 else 1 if tokens_per_s >= 1 else 2}f}"
