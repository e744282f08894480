"""What a conversation is: checked before a template sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgert.errors import UsageError

Message = Mapping[str, Any]


def check_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages as plain dictionaries.

    Each is a mapping with `role` (a string) and `content`: a string, a list of parts as in {"type": "text", "text":
    "..."}, or nothing where there are `tool_calls`. Further keys pass through. Raises UsageError, naming the message.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise UsageError(
            f"messages: found {type(messages).__name__}, expected a list such as "
            f'[{{"role": "user", "content": "Hello"}}]'
        )
    if not messages:
        raise UsageError("messages: found an empty list, expected at least one message")
    return [_check_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _check_message(message: Message, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise UsageError(f"{where}: found {type(message).__name__}, expected a dictionary with role and content")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise UsageError(f"{where}: found role {role!r}, expected a string such as 'user'")
    content = message.get("content")
    if content is None:
        if not message.get("tool_calls"):
            raise UsageError(f"{where}: found no content, expected a string or a list of parts")
    elif not isinstance(content, str):
        _check_parts(content, where)
    return dict(message)


def _check_parts(content: object, where: str) -> None:
    if not isinstance(content, (list, tuple)):
        raise UsageError(
            f"{where}: found content of type {type(content).__name__}, expected a string or a list of parts"
        )
    for i, part in enumerate(content):
        if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
            raise UsageError(f'{where}: content[{i}]: found {part!r:.60}, expected {{"type": "text", "text": "..."}}')


def check_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    """The tools as plain dictionaries (JSON schemas of functions). Raises UsageError for anything else."""
    if tools is None:
        return None
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Sequence):
        raise UsageError(f"tools: found {type(tools).__name__}, expected a list of JSON schemas")
    for i, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise UsageError(f"tools[{i}]: found {type(tool).__name__}, expected a dictionary with a JSON schema")
    return [dict(tool) for tool in tools]
