"""Line editing in a terminal: history, completion, messages of several lines."""

from __future__ import annotations

from collections.abc import Iterable

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from edgert.cli.chat.commands import COMMANDS
from edgert.cli.chat.conversation import OPTIONS
from edgert.cli.chat.history import ChatHistory
from edgert.cli.chat.reading import PROMPT, is_open_quote

CONTINUATION = "... "


class Editor:
    """Reads from the terminal: Enter sends, Alt-Enter breaks the line, Tab completes commands."""

    def __init__(self) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=ChatHistory(),
            multiline=True,
            prompt_continuation=_continuation,
            key_bindings=_key_bindings(),
            completer=CommandCompleter(),
            complete_while_typing=False,
            enable_suspend=True,
        )

    def read(self, draft: str) -> str | None:
        """The text that was sent; None after Ctrl-D, or Ctrl-C where nothing was typed."""
        while True:
            try:
                text = self._session.prompt(PROMPT, default=draft)
            except EOFError:
                return None
            except KeyboardInterrupt:
                if not self._session.default_buffer.text:
                    return None
                draft = ""
                continue
            # Bytes that are no UTF-8 arrive as lone surrogates.
            return text.encode("utf-8", "replace").decode()


class CommandCompleter(Completer):
    """Completes the names of commands, and what stands behind them."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        name, space, argument = text.partition(" ")
        if not space:
            for known, command in COMMANDS.items():
                if known.startswith(name):
                    yield Completion(known, -len(name), display=command.usage, display_meta=command.summary)
        elif name in COMMANDS:
            kind = COMMANDS[name].completes
            if kind == "files":
                yield from self._paths.get_completions(Document(argument), complete_event)
            else:
                words = {"options": OPTIONS, "on and off": ("on", "off"), "nothing": ()}[kind]
                yield from (Completion(word, -len(argument)) for word in words if word.startswith(argument))


def _continuation(width: int, line: int, num_wraps: int) -> str:
    """What stands before the lines after the first; nothing where a long line goes on."""
    return "" if num_wraps else CONTINUATION


def _key_bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def _send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_open_quote(buffer.text):
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    def _break_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return bindings
