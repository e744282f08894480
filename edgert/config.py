"""Typed reading of config.json: every value is checked, every error names file, key, found and expected."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from edgert.errors import ConfigError, UnsupportedModelError

MAX_INTEGER = 2**31 - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Required:
    """The type of REQUIRED, the default of keys that must be there."""


REQUIRED = _Required()


@dataclass(frozen=True, slots=True)
class ConfigReader:
    """A JSON object and the place that it came from. A key may have several spellings; null counts as absent."""

    values: Mapping[str, Any]
    source: str

    def integer(
        self,
        *keys: str,
        default: int | _Required = REQUIRED,
        minimum: int = 1,
        maximum: int = MAX_INTEGER,
    ) -> int:
        """A whole number in minimum..maximum, both included."""
        key, value = self._find(keys)
        if value is None:
            return self._default(key, default, "a whole number")
        return _checked_integer(value, self.source, key, minimum, maximum)

    def number(
        self,
        *keys: str,
        default: float | _Required = REQUIRED,
        above: float = -math.inf,
        maximum: float = math.inf,
    ) -> float:
        """A finite number greater than `above`, at most `maximum`."""
        key, value = self._find(keys)
        if value is None:
            return self._default(key, default, "a number")
        return _checked_number(value, self.source, key, above, maximum)

    def flag(self, *keys: str, default: bool | _Required = REQUIRED) -> bool:
        """True or false."""
        key, value = self._find(keys)
        if value is None:
            return self._default(key, default, "true or false")
        if not isinstance(value, bool):
            raise self.error(key, value, "true or false")
        return value

    def string(self, *keys: str, default: str | _Required = REQUIRED) -> str:
        """A string."""
        key, value = self._find(keys)
        if value is None:
            return self._default(key, default, "a string")
        if not isinstance(value, str):
            raise self.error(key, value, "a string")
        return value

    def integers(self, *keys: str, minimum: int = 0, maximum: int = MAX_INTEGER) -> tuple[int, ...]:
        """A list of whole numbers, or one number alone; absent: empty."""
        key, value = self._find(keys)
        items = () if value is None else value if isinstance(value, list | tuple) else (value,)
        return tuple(_checked_integer(item, self.source, key, minimum, maximum) for item in items)

    def numbers(self, *keys: str, length: int, above: float = -math.inf) -> tuple[float, ...]:
        """A list of `length` finite numbers, each greater than `above`."""
        key, value = self._find(keys)
        if not isinstance(value, list | tuple) or len(value) != length:
            found = f"a list of {len(value)}" if isinstance(value, list | tuple) else value
            raise self.error(key, found, f"a list of {length} numbers")
        return tuple(_checked_number(item, self.source, key, above, math.inf) for item in value)

    def strings(self, *keys: str) -> tuple[str, ...]:
        """A list of strings; absent: empty."""
        key, value = self._find(keys)
        if value is None:
            return ()
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise self.error(key, value, "a list of strings")
        return tuple(value)

    def section(self, *keys: str) -> ConfigReader | None:
        """An object inside this one, or None if it is absent."""
        key, value = self._find(keys)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.error(key, value, "an object")
        return ConfigReader(value, f"{self.source}: {key}")

    def with_defaults(self, defaults: Mapping[str, Any]) -> ConfigReader:
        """The same object, where a key that is absent or null has another value."""
        missing = {key: value for key, value in defaults.items() if self.values.get(key) is None}
        return ConfigReader({**self.values, **missing}, self.source)

    def require(self, key: str, supported: Sequence[Any], *, default: Any) -> None:
        """Refuses a value that the architecture knows but edgert would run wrongly."""
        value = self.values.get(key)
        value = default if value is None else value
        if not any(type(value) is type(item) and value == item for item in supported):
            names = " or ".join(repr(item) for item in supported)
            raise UnsupportedModelError(
                f"{self.source}: {key} is {shown(value)}, edgert runs {names}; use another model"
            )

    def error(self, key: str, found: object, expected: str) -> ConfigError:
        """The error for a value that is not what it must be."""
        return ConfigError(f"{self.source}: {key}: found {shown(found)}, expected {expected}; is the file damaged?")

    def _find(self, keys: tuple[str, ...]) -> tuple[str, Any]:
        """The first spelling that is there with its value, else the first spelling and None."""
        for key in keys:
            if self.values.get(key) is not None:
                return key, self.values[key]
        return keys[0], None

    def _default(self, key: str, default: T | _Required, expected: str) -> T:
        if isinstance(default, _Required):
            raise ConfigError(f"{self.source}: {key}: found nothing, expected {expected}; is the file complete?")
        return default


def _checked_integer(value: object, source: str, key: str, minimum: int, maximum: int) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise ConfigReader({}, source).error(key, value, f"a whole number in {minimum}..{maximum}")
    return value


def _checked_number(value: object, source: str, key: str, above: float, maximum: float) -> float:
    if not isinstance(value, bool) and isinstance(value, int | float):
        try:
            number = float(value)
        except OverflowError:
            number = math.nan
        if math.isfinite(number) and above < number <= maximum:
            return number
    bounds = "" if above == -math.inf else f" above {above:g}"
    bounds += "" if maximum == math.inf else f", at most {maximum:g}"
    raise ConfigReader({}, source).error(key, value, f"a finite number{bounds}")


def shown(value: object) -> str:
    """A value for an error text: short, printable, and safe to make however large or deep it is."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**64:
        return "a huge whole number"
    if isinstance(value, str) and value.startswith("a list of "):
        return value
    text = reprlib.repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
