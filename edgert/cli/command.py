"""A command as the parser sees it: every option also reads an environment variable, and values are read quickly."""

from __future__ import annotations

import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import typer
from typer.core import TyperCommand

from edgert.errors import EdgertError

# Of click, or of the copy of click inside newer versions of typer.
Context: TypeAlias = Any
Param: TypeAlias = Any

_TRUE, _FALSE = ("1", "true", "yes", "on", "t", "y"), ("0", "false", "no", "off", "f", "n")


def twin_name(option: Param) -> str:
    """The environment variable of an option: `--top-k` reads EDGERT_TOP_K; the longest spelling gives the name."""
    return "EDGERT_" + str(max(option.opts, key=len)).lstrip("-").replace("-", "_").upper()


def is_from_environment(context: Context, name: str) -> bool:
    """Whether a parameter has its value from its environment variable."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "ENVIRONMENT"


class Command(TyperCommand):
    """A command whose options have environment twins (docs/cli.md); what is given goes before them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        hints = typing.get_type_hints(self.callback)
        for param in self.params:
            if param.param_type_name == "option":
                _add_twin(param)
            kind = _value_type(hints.get(str(param.name)))
            if kind is not None:
                read_values(param, kind)

    def get_help_option(self, ctx: Context) -> Any:
        return read_switch(super().get_help_option(ctx))

    def invoke(self, ctx: Context) -> Any:
        """Runs the command; an error about a value that came from an environment variable names the variable."""
        try:
            return super().invoke(ctx)
        except EdgertError as error:
            subject = str(error).partition(":")[0]
            for param in self.params:
                names = (param.name, *param.opts, str(ctx.params.get(str(param.name))))
                if subject in names and is_from_environment(ctx, str(param.name)):
                    error.args = (f"{param.envvar}: {error}",)
            raise


def _add_twin(option: Param) -> None:
    option.envvar = twin_name(option)
    option.show_envvar = True

    def value_from_environment(context: Context) -> Any:
        text = option.resolve_envvar_value(context)
        if text is None or not _takes_many(option):
            return text
        # A line for each value: they may hold spaces.
        return tuple(line for line in text.split("\n") if line) or None

    option.value_from_envvar = value_from_environment


def read_values(param: Param, kind: type) -> None:
    """Reads values of a known type here: the parser's own way imports pydantic, which takes longer than a model."""
    read, expected = _READERS[kind]
    parsers_way = param.process_value

    def read_one(context: Context, text: str) -> Any:
        try:
            return read(text)
        except ValueError:
            is_twin = is_from_environment(context, param.name)
            hint = param.envvar if is_twin else " / ".join(f"'{name}'" for name in param.opts)
            message = f"found {text!r}, expected {expected}"
            raise typer.BadParameter(message, ctx=context, param_hint=hint) from None

    def convert(context: Context, value: Any) -> Any:
        if isinstance(value, str) and not _takes_many(param):
            return read_one(context, value)
        if isinstance(value, (list, tuple)) and value and all(isinstance(one, str) for one in value):
            return tuple(read_one(context, one) for one in value)
        return () if value is None and _takes_many(param) else value

    def process(context: Context, value: Any) -> Any:
        if (value is None and param.required) or not isinstance(value, (type(None), str, list, tuple, kind)):
            return parsers_way(context, value)  # an error, or a stand-in of the parser's for nothing given
        value = convert(context, value)
        return value if param.callback is None else param.callback(context, param, value)

    param.process_value = process


def read_switch(option: Param | None) -> Param | None:
    """As `read_values` for an option of the parser's own, such as --help, which may be asked for again and again."""
    if option is not None and "process_value" not in vars(option):
        parsers_way = option.process_value

        def process(context: Context, value: Any) -> Any:
            if value is not None and not isinstance(value, bool):
                return parsers_way(context, value)
            return value if option.callback is None else option.callback(context, option, value)

        option.process_value = process
    return option


def _takes_many(param: Param) -> bool:
    return bool(getattr(param, "multiple", False)) or param.nargs != 1


def _read_bool(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise ValueError
    return word in _TRUE


_READERS: dict[type, tuple[Callable[[str], Any], str]] = {
    str: (str, "a text"),
    int: (int, "an integer"),
    float: (float, "a number"),
    bool: (_read_bool, "1 or 0"),
    Path: (Path, "a path"),
}


def _value_type(hint: Any) -> type | None:
    """The type of one value: of `list[str] | None` it is str; None where the parser shall do it."""
    for _ in range(2):
        options = [one for one in typing.get_args(hint) if one is not type(None)]
        if len(options) == 1:
            hint = options[0]
    return hint if hint in _READERS else None
