"""What a verification has to say, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from edgert.errors import EdgertError

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the report: a file that is whole, something odd, or something broken (then with its error)."""

    level: Level
    file: Path
    message: str
    error: EdgertError | None = None


@dataclass(slots=True, kw_only=True)
class Report:
    """All findings, and how many bytes were read for them."""

    findings: list[Finding] = field(default_factory=list)
    num_bytes: int = 0
    elapsed_s: float = 0.0

    @property
    def error(self) -> EdgertError | None:
        """The first error, None for a model that is whole."""
        return next((finding.error for finding in self.findings if finding.error is not None), None)
