"""How much a chat template may do: it comes with the model's file, so it is not to be trusted."""

from __future__ import annotations

import re
import time
from collections.abc import ItemsView, KeysView, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from jinja2.utils import Namespace


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one rendering. A real template stays far below each."""

    source_chars: int = 256 << 10
    output_chars: int = 8 << 20  # of the text, and of every string on the way
    steps: int = 300_000  # loop turns, calls, filters and operators
    items: int = 200_000  # in a list or dictionary, with all that it holds
    seconds: float = 5.0
    width: int = 100_000  # a single padding or number of parts
    number_bits: int = 4096


class LimitError(Exception):
    """A template went beyond its limits."""


# Widths of four digits, and computed ones, by the character that begins a field.
_WIDE_FIELD = {
    "%": re.compile(r"%(?:\([^)]*\))?[^a-zA-Z%]*(?:\d{4}|\*)"),
    "{": re.compile(r":[^{}]*(?:\d{4}|\{)"),
}


class Budget:
    """What is left of the limits during one rendering."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._steps = limits.steps
        # Printed text, whether it reaches the output or is captured by a macro or a block.
        self._chars = 4 * limits.output_chars
        self._deadline = time.monotonic() + limits.seconds

    def charge(self, steps: int = 1, chars: int = 0) -> None:
        """Takes work off the budget. Raises LimitError when it is used up."""
        self._steps -= steps
        self._chars -= chars
        if self._steps < 0:
            raise LimitError(f"more than {self.limits.steps} steps of work")
        if self._chars < 0:
            raise LimitError(f"more than {4 * self.limits.output_chars} characters printed")
        if time.monotonic() > self._deadline:
            raise LimitError(f"more than {self.limits.seconds} seconds")

    def check_chars(self, count: int) -> None:
        """Raises LimitError for a string longer than the output may be."""
        if count > self.limits.output_chars:
            raise LimitError(f"a string of {count} characters, at most {self.limits.output_chars} allowed")

    def check_items(self, count: int) -> None:
        """Raises LimitError for a collection with more items than allowed."""
        if count > self.limits.items:
            raise LimitError(f"a collection of {count} items, at most {self.limits.items} allowed")

    def check_width(self, value: object) -> None:
        """Raises LimitError for a padding or a number of parts out of proportion."""
        if isinstance(value, int) and abs(value) > self.limits.width:
            raise LimitError(f"a width or count of {value}, at most {self.limits.width} allowed")

    def check_number(self, bits: int) -> None:
        """Raises LimitError for an integer with more bits than allowed."""
        if bits > self.limits.number_bits:
            raise LimitError(f"a number of {bits} bits, at most {self.limits.number_bits} allowed")

    def check_format(self, text: str, marker: str, values: Sequence[object]) -> None:
        """Raises LimitError for a format string with large or computed widths, or a result that would be too long."""
        if _WIDE_FIELD[marker].search(text):
            raise LimitError(f"a format string with a large or computed width ({text[:40]!r})")
        longest = max((self.measure(value) for value in values), default=0)
        self.check_chars(len(text) + text.count(marker) * longest)

    def measure(self, value: object) -> int:
        """Characters that `value` takes as text, roughly. Raises LimitError for too many of them, or of items."""
        if isinstance(value, str):
            return len(value)
        items, chars = self._walk(value)
        return chars + 2 * items

    def count_items(self, value: object) -> int:
        """Number of values in `value`, all that it holds included. Raises LimitError for too many."""
        return self._walk(value)[0]

    def _walk(self, value: object) -> tuple[int, int]:
        """Items and characters of `value`.

        A list that holds the same list many times is small in memory and huge as text: it is walked as text.
        """
        items, chars, stack = 0, 0, [value]
        while stack:
            part = stack.pop()
            items += 1
            if isinstance(part, str):
                chars += len(part) + 4
            elif isinstance(part, Mapping):
                stack.extend(part.keys())
                stack.extend(part.values())
            elif isinstance(part, Namespace):
                stack.append(part._Namespace__attrs)
            elif isinstance(part, (list, tuple, AbstractSet, KeysView, ValuesView, ItemsView)):
                stack.extend(part)
            else:
                chars += part.bit_length() // 3 + 4 if isinstance(part, int) else 32
            # What would be walked next counts as well.
            self.check_items(items + len(stack))
            self.check_chars(chars)
        self.charge(items // 16)
        return items, chars
