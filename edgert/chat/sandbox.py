"""The jinja2 environment that chat templates run in: sandboxed, and metered.

jinja2's sandbox keeps a template away from the interpreter, not from the memory and the clock. Here the compiled
template also pays for every loop turn, call, filter and operator, and what would make a text grow is measured before
it is made.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler
from jinja2.visitor import NodeTransformer

from edgert.chat.filters import CHECK_OPERATOR, FILTERS, budget_of, check_indent, check_join, check_replace
from edgert.chat.limits import Budget, Limits

_SAFE_STR_METHODS = frozenset(
    name
    for name in dir(str)
    if name.startswith(("is", "find", "index", "rfind", "rindex", "split", "rsplit", "strip", "lstrip", "rstrip"))
    or name in ("capitalize", "casefold", "count", "endswith", "lower", "partition", "removeprefix", "removesuffix")
    or name in ("rpartition", "startswith", "swapcase", "title", "upper")
)
_CHARS_PER_STEP = 256
_PADDING_METHODS = frozenset(("center", "ljust", "rjust", "zfill", "expandtabs"))
# Arguments of these filters say how long the result is.
_SIZED_FILTERS = frozenset(("batch", "center", "indent", "slice", "truncate"))
# Filters of no use to a chat template that cost more than their input.
_DROPPED_FILTERS = ("pprint", "urlize", "wordwrap", "xmlattr")


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
        self.filters.update(FILTERS)
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
        return __self.check_value(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Every operator in `intercepted_binops` comes here."""
        self.budget.charge()
        CHECK_OPERATOR[operator](self.budget, left, right)
        return self.check_value(super().call_binop(context, operator, left, right))

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
        """Returns `value` after paying for its size.

        What a value holds counts too, however often: nothing grows by holding itself many times.
        """
        if isinstance(value, str):
            self.budget.charge(len(value) // _CHARS_PER_STEP)
        held = value.items if isinstance(value, Cycler) else value
        if isinstance(held, (list, tuple, dict)):
            self.budget.count_items(held)
        return value

    def concatenate(self, *values: Any) -> str:
        """The operator `~`."""
        self.budget.check_chars(sum(self.budget.measure(value) for value in values))
        text: str = self.check_value("".join(map(str, values)))
        return text

    def _check_method(self, function: Any, args: tuple[Any, ...]) -> None:
        owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
        if isinstance(owner, str):
            if name in _PADDING_METHODS:
                self.budget.check_width(args[0] if args else 8)
                self.budget.check_chars(len(owner) * (args[0] if args else 8) if name == "expandtabs" else len(owner))
            elif name == "join":
                check_join(self.budget, list(args[0]) if args else [], owner)
            elif name == "replace":
                check_replace(self.budget, owner, *args[:2])
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
            if name == "indent":
                check_indent(self.budget, args[0], *args[1:2] or [kwargs.get("width", 4)])
            elif name == "string":
                self.budget.measure(args[-1])
            return self.check_value(function(*args, **kwargs))

        return metered

    def _strftime_now(self, format: str) -> str:
        self.budget.check_format(format, "%", [])
        self.budget.check_width(len(format))
        return self._clock().strftime(format)


@pass_context
def _finalize(context: Context, value: Any) -> Any:
    """Pays for what `{{ ... }}` prints."""
    budget = budget_of(context)
    budget.charge(1, budget.measure(value))
    return value


def _new_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _raise_exception(message: object) -> None:
    raise TemplateError(str(message))
