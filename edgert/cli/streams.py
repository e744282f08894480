"""The standard streams of the process, however they were given: closed, full, without a reader, in any encoding."""

from __future__ import annotations

import io
import os
import sys

from edgert.errors import OutputError

STDIN, STDOUT, STDERR = 0, 1, 2


class Output(io.TextIOWrapper):
    """stdout whose failures are errors of edgert, so that they are not taken for those of another file."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise _output_error(error) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise _output_error(error) from error


def open_streams() -> None:
    """Makes stdin and stderr usable where they are closed, and stdout able to write any text.

    Raises OutputError where stdout is closed.
    """
    is_closed = sys.stdout is None
    for descriptor in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            # Else the next file that is opened would be taken for the stream. Lower ones are open: this is the one.
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = os.fdopen(STDIN, encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(STDERR, "w", encoding="utf-8", closefd=False)
    if is_closed:
        sys.stdout = os.fdopen(STDOUT, "w", encoding="utf-8", closefd=False)
        raise OutputError("stdout: found it closed, expected a file, a pipe or a terminal; nothing was done")
    # What the terminal's encoding cannot show must not end an answer. Not where a program has put its own stream there.
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        old = sys.stdout
        sys.stdout = Output(
            old.detach(),
            old.encoding,
            errors="replace",
            line_buffering=old.line_buffering,
            write_through=old.write_through,
        )
        # shutil.get_terminal_size asks the original one, which has nothing below it any more.
        sys.__stdout__ = sys.stdout  # type: ignore[misc]


def drop(descriptor: int) -> None:
    """Lets what a stream has not taken go nowhere, so that the end of the process does not fail at it again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


def _output_error(error: OSError) -> OutputError:
    reason = "its reader gone" if isinstance(error, BrokenPipeError) else error.strerror or str(error)
    return OutputError(f"stdout: found {reason}, expected it to take all of the output; what came is not complete")
