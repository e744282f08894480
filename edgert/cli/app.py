"""The commands, put together; only the one that is asked for is imported."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from edgert.cli.command import Command, read_switch

# Where each command lies, in the order in which help shows them.
COMMANDS = {
    "run": "edgert.cli.run:run",
    "chat": "edgert.cli.chat:chat",
    "show": "edgert.cli.show:show",
    "pull": "edgert.cli.pull:pull",
    "list": "edgert.cli.list:list_models",
    "rm": "edgert.cli.rm:rm",
    "convert": "edgert.cli.convert:convert",
    "verify": "edgert.cli.verify:verify",
    "fit": "edgert.cli.fit:fit",
    "moe profile": "edgert.cli.moe:profile",
    "moe simulate": "edgert.cli.moe:simulate",
    "neurons": "edgert.cli.neurons:neurons",
    "bench": "edgert.cli.bench:bench",
    "doctor": "edgert.cli.doctor:doctor",
}
# Commands of two words: what the first one is for.
GROUPS = {"moe": "Record and simulate the experts of a mixture-of-experts model."}
COMPLETION_VARIABLE = "_EDGERT_COMPLETE"
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

FIRST_STEPS = """\
edgert runs large language models on this machine. To begin:

  edgert run "Tell me a story about a cat."   answer with the small model that comes along
  edgert chat model.gguf                      talk with a model of your own
  edgert show model.gguf                      what a model is, and whether it fits the memory
  edgert pull ORG/NAME-GGUF:q4_k_m            download one; then: edgert chat ORG/NAME-GGUF:q4_k_m
  edgert convert FOLDER llama-p4 -q p4        make a model smaller: 4 bits a weight
  edgert doctor                               what this machine is, and how fast

edgert --help lists all commands; edgert COMMAND --help has examples and every option."""


class CommandGroup(TyperGroup):
    """The registry as a group: a command is imported when it is asked for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The keys serve "did you mean ...?"; get_command makes the values.
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]

    def get_help_option(self, ctx: Any) -> Any:
        return read_switch(super().get_help_option(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        return list(dict.fromkeys(name.partition(" ")[0] for name in COMMANDS))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command, a group, or a command of a group by both of its words."""
        if cmd_name not in COMMANDS and cmd_name not in GROUPS:
            return None
        if self.commands.get(cmd_name) is None:
            self.commands[cmd_name] = _make_group(cmd_name) if cmd_name in GROUPS else _make_command(cmd_name)
        return self.commands[cmd_name]


def make_command() -> Any:
    """The parser of the whole command line."""
    app = typer.Typer(
        cls=CommandGroup,
        invoke_without_command=True,
        # Plain text: it starts faster, and is the same in a pipe.
        rich_markup_mode=None,
        context_settings=_SETTINGS,
    )
    app.callback()(_root)
    command = typer.main.get_command(app)
    for option in command.params:
        read_switch(option)
    return command


def run_app(arguments: list[str]) -> int:
    """Runs the command line; returns its exit code. A wrong option is shown on stderr and gives 2."""
    command = make_command()
    if os.environ.get(COMPLETION_VARIABLE):
        command.main(prog_name="edgert", complete_var=COMPLETION_VARIABLE)  # answers the shell, and exits
    try:
        with command.make_context("edgert", arguments) as context:
            command.invoke(context)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except Exception as error:
        # The parser's errors and `typer.Exit`; their classes lie in click, or inside newer versions of typer.
        code = getattr(error, "exit_code", None)
        if not isinstance(code, int):
            raise
        if show := getattr(error, "show", None):
            show()
        return code
    return 0


def _make_command(name: str) -> Any:
    module, _, function = COMMANDS[name].partition(":")
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name, cls=Command, context_settings=_SETTINGS)(getattr(import_module(module), function))
    return typer.main.get_command(app)


def _make_group(name: str) -> Any:
    app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, context_settings=_SETTINGS)
    app.callback(help=GROUPS[name])(lambda: None)
    for full_name, place in COMMANDS.items():
        group, _, sub_name = full_name.partition(" ")
        if group == name:
            module, _, function = place.partition(":")
            app.command(sub_name, cls=Command, context_settings=_SETTINGS)(getattr(import_module(module), function))
    return typer.main.get_command(app)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from edgert import __version__

        typer.echo(f"edgert {__version__}")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Run large language models on this machine.

    \b
    Example:
      edgert run "Once upon a time"
    """
    if context.invoked_subcommand is None:
        print(FIRST_STEPS)
