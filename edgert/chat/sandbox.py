"""The jinja2 environment that chat templates run in: sandboxed, and metered.

jinja2's sandbox keeps a template away from the interpreter, not from the memory and the clock. Here the compiled
template also pays for every loop turn, call, filter and operator, and what would make a text grow is measured before
it is made.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from edgert.chat.limits import Budget, Limits

_SAFE_STR_METHODS = frozenset(
    name
    for name in dir(str)
    if name.startswith(("is", "find", "index", "rfind", "rindex", "split", "rsplit", "strip", "lstrip", "rstrip"))
    or name in ("capitalize", "casefold", "count", "endswith", "lower", "partition", "removeprefix", "removesuffix")
    or name in ("rpartition", "startswith", "swapcase", "title", "upper")
)
_PADDING_METHODS = frozenset(("center", "ljust", "rjust", "zfill", "expandtabs"))
# Arguments of these filters say how long the result is.
_SIZED_FILTERS = frozenset(("batch", "center", "indent", "slice", "truncate", "wordwrap"))
# Filters of no use to a chat template that cost more than their input.
_DROPPED_FILTERS = ("pprint", "urlize", "xmlattr")


class GenerationTag(Extension):
    """`{% generation %}` marks the assistant's tokens for training: its body is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> nodes.Node:
        """The statements up to `{% endgeneration %}`."""
        lineno = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=lineno)


class _Meter(NodeTransformer):
    """Puts the charges into a parsed template."""

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:
        # As a constant it is printed, and paid for, like any other value.
        return nodes.Const(node.data, lineno=node.lineno)

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("charge", [], node.lineno), lineno=node.lineno))
        if node.test is not None:
            node.test = nodes.And(_call("charge", [], node.lineno), node.test, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call("concatenate", node.nodes, node.lineno)

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _call("check_value", [node], node.lineno)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return _call("check_value", [node], node.lineno)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        # A tuple is a target too, as in {% for key, value in ... %}.
        self.generic_visit(node)
        return _call("check_value", [node], node.lineno) if node.ctx == "load" else node


def _call(name: str, arguments: list[Any], lineno: int) -> nodes.Call:
    callee = nodes.EnvironmentAttribute(name, lineno=lineno)
    return nodes.Call(callee, arguments, [], None, None, lineno=lineno)


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox with limits. REQUIRES: `budget` is set anew for each rendering, and one rendering at a time."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, limits: Limits, clock: Callable[[], datetime] = datetime.now) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # the optimiser would compute constants before the budget is there
            cache_size=0,
            finalize=_finalize,
            extensions=[GenerationTag, loopcontrols],
        )
        self.budget = Budget(limits)
        self._clock = clock
        for name in _DROPPED_FILTERS:
            del self.filters[name]
        self.filters.update(tojson=_to_json, join=_join, replace=_replace, format=_format, sum=_sum)
        for name, function in self.filters.items():
            self.filters[name] = self._metered(name, function)
        del self.globals["lipsum"]
        self.globals.update(
            raise_exception=_raise_exception,
            strftime_now=self._strftime_now,
            dict=_new_dict,
        )

    def _generate(self, source: nodes.Template, name: Any, filename: Any, defer_init: bool = False) -> str:
        return super()._generate(_Meter().visit(source), name, filename, defer_init=defer_init)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Every call in a template comes here."""
        __self.budget.charge()
        __self._check_method(__obj, args)
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Every operator in `intercepted_binops` comes here."""
        self.budget.charge()
        _CHECK_OPERATOR[operator](self.budget, left, right)
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format` with the sandbox's checks, and limits on what comes out."""
        function = super().wrap_str_format(value)
        if function is None:
            return None
        text: str = value.__self__

        def limited(*args: Any, **kwargs: Any) -> str:
            self.budget.check_format(text, "{", [*args, *kwargs.values()])
            return function(*args, **kwargs)

        return limited

    def charge(self) -> bool:
        """Pays for one turn of a loop, in being called."""
        return True

    def check_value(self, value: Any) -> Any:
        """Holds a new list, tuple or dictionary against the limits, and returns it."""
        self.budget.count_items(value)
        return value

    def concatenate(self, *values: Any) -> str:
        """The operator `~`."""
        self.budget.check_chars(sum(self.budget.measure(value) for value in values))
        return "".join(map(str, values))

    def _check_method(self, function: Any, args: tuple[Any, ...]) -> None:
        owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
        if isinstance(owner, str):
            if name in _PADDING_METHODS:
                self.budget.check_width(args[0] if args else 8)
                self.budget.check_chars(len(owner) * (args[0] if args else 8) if name == "expandtabs" else len(owner))
            elif name == "join":
                _check_join(self.budget, list(args[0]) if args else [], owner)
            elif name == "replace":
                _check_replace(self.budget, owner, *args[:2])
            elif name not in _SAFE_STR_METHODS:
                raise SecurityError(f"the method {name!r} of a string is not allowed in a chat template")
        elif isinstance(owner, (bytes, bytearray, int, float)):
            raise SecurityError(f"the method {name!r} of a {type(owner).__name__} is not allowed in a chat template")

    def _metered(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        is_sized = name in _SIZED_FILTERS

        @functools.wraps(function)  # keeps what jinja2 passes first: nothing, the context or the environment
        def metered(*args: Any, **kwargs: Any) -> Any:
            self.budget.charge()
            if is_sized:
                for value in (*args, *kwargs.values()):
                    self.budget.check_width(value)
            elif name == "string":
                self.budget.measure(args[-1])
            return function(*args, **kwargs)

        return metered

    def _strftime_now(self, format: str) -> str:
        self.budget.check_format(format, "%", [])
        self.budget.check_width(len(format))
        return self._clock().strftime(format)


@pass_context
def _finalize(context: Context, value: Any) -> Any:
    """Pays for what `{{ ... }}` prints."""
    budget = _budget(context)
    budget.charge(1, budget.measure(value))
    return value


def _budget(context: Context) -> Budget:
    environment = context.environment
    assert isinstance(environment, LimitedEnvironment)
    return environment.budget


def _new_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _raise_exception(message: object) -> None:
    raise TemplateError(str(message))


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
    budget = _budget(context)
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
    _check_join(_budget(context), values, str(d))
    return str(d).join(map(str, values))


@pass_context
def _replace(context: Context, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    text = str(value)
    _check_replace(_budget(context), text, str(old), str(new))
    return text.replace(str(old), str(new), -1 if count is None else count)


@pass_context
def _format(context: Context, value: Any, *args: Any, **kwargs: Any) -> str:
    values: Any = kwargs or args
    text = str(value)
    _check_modulo(_budget(context), text, values)
    return text % values


@pass_context
def _sum(context: Context, value: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:
    """The sum of numbers (jinja2's also adds lists, in quadratic time)."""
    environment = context.environment
    for item in value:
        number = item if attribute is None else functools.reduce(environment.getitem, str(attribute).split("."), item)
        _check_plus(_budget(context), start, number)
        start = start + number
    return start


def _check_join(budget: Budget, values: list[Any], separator: str) -> None:
    budget.check_items(len(values))
    budget.check_chars(sum(budget.measure(value) for value in values) + len(separator) * max(len(values) - 1, 0))


def _check_replace(budget: Budget, text: str, old: object = "", new: object = "") -> None:
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


_CHECK_OPERATOR: dict[str, Callable[[Budget, Any, Any], None]] = {
    "+": _check_plus,
    "*": _check_times,
    "**": _check_power,
    "%": _check_modulo,
}
