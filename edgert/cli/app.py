"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from edgert.cli.bench import bench
from edgert.cli.chat import chat
from edgert.cli.convert import convert
from edgert.cli.doctor import doctor
from edgert.cli.run import run
from edgert.cli.verify import verify


def make_app() -> typer.Typer:
    """The application with all its commands."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        # Plain text: it starts faster, and is the same in a pipe.
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_root)
    for command in (run, chat, convert, verify, bench, doctor):
        app.command()(command)
    return app


def run_app(arguments: list[str]) -> int:
    """Runs the command line; returns its exit code. A wrong option is shown on stderr and gives 2."""
    command = typer.main.get_command(make_app())
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


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from edgert import __version__

        typer.echo(f"edgert {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Run large language models on this machine.

    \b
    Example:
      edgert run "Once upon a time"
    """
