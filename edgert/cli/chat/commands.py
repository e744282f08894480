"""The slash commands of a chat."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgert.cli.chat.conversation import OPTIONS
from edgert.cli.chat.saved import load_conversation, save_conversation
from edgert.cli.terminal import notice
from edgert.errors import UsageError

if TYPE_CHECKING:
    from edgert.cli.chat.session import Session

Action = Callable[["Session", str], None]
# Below this many columns, a command and what it does stand on lines of their own.
NARROW_COLUMNS = 50
KEYS = (
    'Enter sends, Alt-Enter breaks the line, """ begins and ends a message of several lines, Tab completes a command. '
    "Ctrl-C stops an answer, at the empty prompt it leaves, as Ctrl-D does."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """action(session, argument) does it; `completes` says what its argument is."""

    usage: str
    summary: str
    action: Action
    completes: Literal["nothing", "options", "files", "on and off"]


COMMANDS: dict[str, Command] = {}
_ALIASES = {"/quit": "/exit", "/bye": "/exit", "/?": "/help"}


def is_command(text: str) -> bool:
    """Whether what was typed is a command: one line that begins with "/", or several that begin with a known one."""
    return text.startswith("/") and ("\n" not in text.strip() or _name(text) in COMMANDS)


def run_command(session: Session, text: str) -> None:
    """Does what was typed. Raises UsageError for a command that does not exist, or an argument out of place."""
    name, *rest = text.strip().split(maxsplit=1)
    argument = rest[0] if rest else ""
    command = COMMANDS.get(_ALIASES.get(name, name))
    if command is None:
        raise UsageError(f"{name:.60}: no such command, expected one of: {' '.join(COMMANDS)}")
    if argument and command.usage == _name(command.usage):
        raise UsageError(f"{command.usage}: found {argument!r:.60} behind it, expected nothing")
    command.action(session, argument)


def _name(text: str) -> str:
    return text.split(maxsplit=1)[0]


def _command(
    usage: str, summary: str, *, completes: Literal["nothing", "options", "files", "on and off"] = "nothing"
) -> Callable[[Action], Action]:
    def register(action: Action) -> Action:
        COMMANDS[_name(usage)] = Command(usage=usage, summary=summary, action=action, completes=completes)
        return action

    return register


def _switch(name: str, argument: str) -> bool:
    if argument not in ("on", "off"):
        raise UsageError(f"{name}: found {argument!r:.60}, expected on or off")
    return argument == "on"


@_command("/help", "show this")
def _help(session: Session, argument: str) -> None:
    columns = max(shutil.get_terminal_size().columns, 8)
    width = max(len(command.usage) for command in COMMANDS.values()) + 2
    for command in COMMANDS.values():
        if columns < NARROW_COLUMNS:
            notice(command.usage)
            notice(textwrap.fill(command.summary, columns, initial_indent="  ", subsequent_indent="  "))
        else:
            lines = textwrap.wrap(command.summary, columns - width)
            notice(f"\n{'':{width}}".join([f"{command.usage:{width}}{lines[0]}", *lines[1:]]))
    notice(textwrap.fill(KEYS, columns))


@_command("/exit", "leave; also /quit and /bye")
def _exit(session: Session, argument: str) -> None:
    session.is_over = True


@_command("/clear", "begin a new conversation with the same system message")
def _clear(session: Session, argument: str) -> None:
    session.conversation.clear()


@_command("/regen", "answer the last question again")
def _regen(session: Session, argument: str) -> None:
    session.answer_again()


@_command("/system [TEXT]", 'show or change the system message; "" removes it')
def _system(session: Session, argument: str) -> None:
    conversation = session.conversation
    if argument:
        conversation.system = None if argument == '""' else argument
    else:
        notice(conversation.system if conversation.system is not None else "no system message")


@_command("/set [OPTION [VALUE]]", "show or change how answers are drawn", completes="options")
def _set(session: Session, argument: str) -> None:
    key, _, value = argument.partition(" ")
    if value.strip():
        session.conversation.set_option(key, value.strip())
        return
    for name in [key] if key else OPTIONS:
        shown = session.conversation.option(name)
        notice(f"{name} {'none' if shown is None else json.dumps(shown, ensure_ascii=False)}")


@_command("/stats [on|off]", "show figures of the last answer, or of every answer", completes="on and off")
def _stats(session: Session, argument: str) -> None:
    if argument:
        session.shows_stats = _switch("/stats", argument)
    else:
        session.show_stats()


@_command("/think [on|off]", "show or hide the model's thinking", completes="on and off")
def _think(session: Session, argument: str) -> None:
    if argument:
        session.hides_thinking = not _switch("/think", argument)
    else:
        notice("thinking is hidden" if session.hides_thinking else "thinking is shown")


@_command("/tokens [TEXT]", "count the tokens of the conversation, or show those of a text")
def _tokens(session: Session, argument: str) -> None:
    conversation = session.conversation
    if not argument:
        context = conversation.llm.context
        count = conversation.num_tokens()
        notice(f"{count} of {context} tokens ({100 * count / context:.0f} %)")
        return
    pieces = conversation.split(argument)
    listed = " ".join(f"{json.dumps(piece, ensure_ascii=False)}:{token}" for token, piece in pieces)
    notice(f"{len(pieces)} token{'s' if len(pieces) != 1 else ''}: {listed}")


@_command("/save FILE", "write the conversation to a file", completes="files")
def _save(session: Session, argument: str) -> None:
    path = _path("/save", argument)
    save_conversation(path, session.conversation.saved())
    notice(f"saved {_counted(len(session.conversation.messages))} to {path}")


@_command("/load FILE", "go on with a conversation from a file", completes="files")
def _load(session: Session, argument: str) -> None:
    session.restore(load_conversation(_path("/load", argument)))


def _path(name: str, argument: str) -> Path:
    if not argument:
        raise UsageError(f"{name}: found no file, expected the name of one")
    try:
        return Path(argument).expanduser()
    except RuntimeError:
        raise UsageError(f"{name}: found {argument!r:.60}, expected a path; there is no such home folder") from None


def _counted(num_messages: int) -> str:
    return f"{num_messages} message{'s' if num_messages != 1 else ''}"
