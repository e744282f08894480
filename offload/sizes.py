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


def parse_bytes(text: str, option: str, *, expected: str = "a size such as 3GiB") -> int:
    """Bytes of "3GiB", "1.5 GB" or "2000000", rounded down; kB, MB, GB are powers of 1000, KiB and K those of 1024.

    Raises UsageError, which names the option and what was `expected`.
    """
    match = _SIZE.fullmatch(text.strip()) if len(text) <= _MAX_CHARS else None
    unit = _UNITS.get(match["unit"].lower()) if match else None
    if match and unit:
        num_bytes = int(Decimal(match["number"]) * unit)
        if 0 < num_bytes <= _MAX_BYTES:
            return num_bytes
    raise UsageError(f"{option}: found {text[:_MAX_CHARS]!r}, expected {expected}")


def parse_rate(text: str, option: str) -> int:
    """Bytes a second of "500MB/s"; the "/s" may be left out. Raises UsageError."""
    expected = "a rate such as 500MB/s"
    stripped = text.strip()
    try:
        return parse_bytes(stripped[:-2] if stripped.lower().endswith("/s") else stripped, option, expected=expected)
    except UsageError:
        raise UsageError(f"{option}: found {text[:_MAX_CHARS]!r}, expected {expected}") from None


def format_bytes(num_bytes: int) -> str:
    """A size for people, in the units in which budgets are given: "3 GiB", "412 MiB", "1.5 GiB"."""
    for power, prefix in ((3, "Gi"), (2, "Mi"), (1, "Ki")):
        value = num_bytes / 1024**power
        if value >= 1:
            digits = 2 if value < 10 else 1 if value < 100 else 0
            shown = f"{value:.{digits}f}"
            return f"{shown.rstrip('0').rstrip('.') if digits else shown} {prefix}B"
    return f"{num_bytes} bytes"
