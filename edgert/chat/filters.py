"""Filters of chat templates whose result can outgrow their input, measured before it is made."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context

from edgert.chat.limits import Budget


def budget_of(context: Context) -> Budget:
    """What is left to the rendering that `context` belongs to. REQUIRES: a LimitedEnvironment."""
    budget = getattr(context.environment, "budget", None)
    assert isinstance(budget, Budget)
    return budget


@pass_context
def _to_json(
    context: Context,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers' templates expect it: no HTML escapes."""
    budget = budget_of(context)
    budget.check_width(indent)
    budget.check_chars(budget.measure(value))
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@pass_context
def _join(context: Context, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    environment = context.environment
    if attribute is not None:
        path = str(attribute).split(".")
        value = [functools.reduce(environment.getitem, path, item) for item in value]
    values = list(value)
    check_join(budget_of(context), values, str(d))
    return str(d).join(map(str, values))


@pass_context
def _replace(context: Context, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    text = str(value)
    check_replace(budget_of(context), text, str(old), str(new))
    return text.replace(str(old), str(new), -1 if count is None else count)


@pass_context
def _format(context: Context, value: Any, *args: Any, **kwargs: Any) -> str:
    values: Any = kwargs or args
    text = str(value)
    _check_modulo(budget_of(context), text, values)
    formatted: str = text % values
    return formatted


@pass_context
def _sum(context: Context, value: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:
    """The sum of numbers (jinja2's also adds lists, in quadratic time)."""
    environment = context.environment
    for item in value:
        number = item if attribute is None else functools.reduce(environment.getitem, str(attribute).split("."), item)
        _check_plus(budget_of(context), start, number)
        start = start + number
    return start


def check_join(budget: Budget, values: list[Any], separator: str) -> None:
    """Holds what `separator.join(values)` gives against the limits."""
    budget.check_items(len(values))
    budget.check_chars(sum(budget.measure(value) for value in values) + len(separator) * max(len(values) - 1, 0))


def check_indent(budget: Budget, text: object, width: object = 4) -> None:
    """Holds a text whose lines are indented by a number of spaces, or a text, against the limits."""
    if isinstance(text, str):
        lines = len(text.splitlines()) + 1
        budget.check_chars(len(text) + lines * (len(width) if isinstance(width, str) else int(str(width))))


def check_replace(budget: Budget, text: str, old: object = "", new: object = "") -> None:
    """Holds what `text.replace(old, new)` gives against the limits."""
    if isinstance(old, str) and isinstance(new, str) and len(new) > len(old):
        budget.check_chars(len(text) + text.count(old) * (len(new) - len(old)))


def _check_plus(budget: Budget, left: Any, right: Any) -> None:
    if isinstance(left, str) and isinstance(right, str):
        budget.check_chars(len(left) + len(right))
    elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        budget.count_items((left, right))


def _check_times(budget: Budget, left: Any, right: Any) -> None:
    for value, count in ((left, right), (right, left)):
        if isinstance(count, int) and isinstance(value, str):
            budget.check_chars(len(value) * max(count, 0))
        elif isinstance(count, int) and isinstance(value, (list, tuple)):
            budget.check_items(budget.count_items(value) * max(count, 0))
    if isinstance(left, int) and isinstance(right, int):
        budget.check_number(left.bit_length() + right.bit_length())


def _check_power(budget: Budget, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        budget.check_number(left.bit_length() * max(right, 0))


def _check_modulo(budget: Budget, left: Any, right: Any) -> None:
    if isinstance(left, str):
        values = right if isinstance(right, tuple) else (right.values() if isinstance(right, Mapping) else [right])
        budget.check_format(left, "%", list(values))


CHECK_OPERATOR: dict[str, Callable[[Budget, Any, Any], None]] = {
    "+": _check_plus,
    "*": _check_times,
    "**": _check_power,
    "%": _check_modulo,
}

FILTERS: dict[str, Callable[..., Any]] = {
    "format": _format,
    "join": _join,
    "replace": _replace,
    "sum": _sum,
    "tojson": _to_json,
}
