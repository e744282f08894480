"""Sizes and rates as people write them: "3GiB", "500MB/s"."""

from __future__ import annotations

import re
from decimal import Decimal

from edgert.errors import UsageError

_SIZE = re.compile(r"(?P<number>\d+(\.\d*)?|\.\d+)\s*(?P<unit>[a-z]*)", re.IGNORECASE | re.ASCII)
_PREFIXES = "kmgt"
# "3G" is 3 GiB, as in other tools that take a memory size; "3GB" is what it says.
_UNITS: dict[str, int] = {"": 1, "b": 1} | {
    prefix + suffix: base ** (power + 1)
    for power, prefix in enumerate(_PREFIXES)
    for suffix, base in (("", 1024), ("ib", 1024), ("b", 1000))
}
_MAX_BYTES = 1 << 62
_MAX_CHARS = 40


def parse_bytes(text: str, option: str = "--ram", *, expected: str = "a size such as 3GiB, or auto") -> int:
    """Bytes of "3GiB", "1.5 GB" or "2000000", rounded down; kB, MB, GB are powers of 1000, KiB and K those of 1024.

    Raises UsageError, which names the option and what was `expected`.
    """
    if (num_bytes := _bytes_of(text)) is None:
        raise UsageError(f"{option}: found {text[:_MAX_CHARS]!r}, expected {expected}")
    return num_bytes


def parse_rate(text: str, option: str = "--disk-limit") -> int:
    """Bytes a second of "500MB/s"; the "/s" may be left out. Raises UsageError."""
    if (num_bytes := _bytes_of(re.sub(r"/s\s*$", "", text[: _MAX_CHARS + 1], flags=re.IGNORECASE))) is None:
        raise UsageError(f"{option}: found {text[:_MAX_CHARS]!r}, expected a rate such as 500MB/s")
    return num_bytes


def format_bytes(num_bytes: int) -> str:
    """A size for people, in the units in which budgets are given: "3 GiB", "412 MiB", "1.5 GiB"."""
    for power, prefix in ((3, "Gi"), (2, "Mi"), (1, "Ki")):
        value = num_bytes / 1024**power
        if value >= 1:
            digits = 2 if value < 10 else 1 if value < 100 else 0
            shown = f"{value:.{digits}f}"
            return f"{shown.rstrip('0').rstrip('.') if digits else shown} {prefix}B"
    return f"{num_bytes} bytes"


def as_option(num_bytes: int) -> str:
    """The size as an option takes it, rounded up: "2.5GiB", "412MiB"."""
    tenths = -(-num_bytes * 10 // 2**30)
    if num_bytes < 1 << 30:
        return f"{-(-num_bytes // 2**20)}MiB"
    return f"{tenths // 10}GiB" if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}GiB"


def _bytes_of(text: str) -> int | None:
    """None where it is no size above 0."""
    match = _SIZE.fullmatch(text.strip()) if len(text) <= _MAX_CHARS else None
    unit = _UNITS.get(match["unit"].lower()) if match else None
    if match is None or unit is None:
        return None
    num_bytes = int(Decimal(match["number"]) * unit)
    return num_bytes if 0 < num_bytes <= _MAX_BYTES else None
