"""Where a chat reads from: a pipe, a terminal whose answers go elsewhere, a terminal with line editing."""

from __future__ import annotations

import io
import sys
from typing import Protocol

from edgert.cli.terminal import notice

PROMPT = ">>> "
QUOTES = '"""'


class Reader(Protocol):
    """Gives what is typed, message by message."""

    def read(self, draft: str) -> str | None:
        """The next message or command; None when there is none any more. draft: a text to begin with, to be edited."""


class LineReader:
    """A message for each line of stdin; for a person, with a prompt on stderr."""

    def __init__(self, *, is_prompting: bool) -> None:
        self._is_prompting = is_prompting
        # What is no UTF-8 must not end the chat.
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")

    def read(self, draft: str) -> str | None:
        if sys.stdin is None:  # closed
            return None
        if self._is_prompting:
            sys.stderr.write(PROMPT)
            sys.stderr.flush()
        try:
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            if not self._is_prompting:
                raise
            line = ""
        if not line and self._is_prompting:
            notice("")
        return line.rstrip("\r\n") if line else None


def open_reader() -> Reader:
    """The reader that fits stdin and stdout."""
    if not is_interactive():
        return LineReader(is_prompting=False)
    if not sys.stdout.isatty():
        return LineReader(is_prompting=True)
    # Imported here: it takes as long as all else that a chat imports, and a pipe has no use for it.
    from edgert.cli.chat.editor import Editor

    return Editor()


def is_interactive() -> bool:
    """Whether a person types."""
    return sys.stdin is not None and sys.stdin.isatty()


def is_open_quote(text: str) -> bool:
    """Whether the text begins a message of several lines that is not ended yet."""
    text = text.strip()
    return text.startswith(QUOTES) and (len(text) < 2 * len(QUOTES) or not text.endswith(QUOTES))


def unquoted(text: str) -> str | None:
    '''What stands between """ and """; None where the text is not so written.'''
    text = text.strip()
    if not text.startswith(QUOTES) or is_open_quote(text):
        return None
    return text[len(QUOTES) : -len(QUOTES)].removeprefix("\n").removesuffix("\n")
