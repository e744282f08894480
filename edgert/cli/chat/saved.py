"""A conversation as a JSON file: written whole or not at all, read with every field checked (docs/chat.md)."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from edgert.engine.params import BANNED_LOGIT_BIAS, SamplingOptions, sampling_params
from edgert.errors import ConversationError, UsageError

FORMAT = "edgert conversation"
VERSION = 1
# Every saved conversation begins so: only such a file is replaced by another one.
_BEGINNING = b'{\n "format": "edgert conversation"'
# Some 4 million tokens.
MAX_FILE_BYTES = 16 << 20
_FIELDS = ("format", "version", "model", "system", "sampling", "messages")
_ROLES = ("user", "assistant")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedConversation:
    """What a file holds. messages: "role" and "content", questions and answers in turn, an answer last."""

    model: str
    system: str | None
    sampling: SamplingOptions
    messages: list[dict[str, str]]


def save_conversation(path: Path, saved: SavedConversation) -> None:
    """Writes the file, on the disk when this returns; an older conversation of that name is replaced whole.

    Raises ConversationError, with nothing changed, where something else has the name or the file cannot be written.
    """
    fields = {"format": FORMAT, "version": VERSION, "model": saved.model, "system": saved.system}
    fields |= {"sampling": _finite(saved.sampling), "messages": saved.messages}
    content = json.dumps(fields, ensure_ascii=False, indent=1, allow_nan=False).encode("utf-8", "replace") + b"\n"
    if len(content) > MAX_FILE_BYTES:
        raise ConversationError(f"{path}: found {len(content)} bytes, expected at most {MAX_FILE_BYTES}; /clear first")
    try:
        # Behind a symbolic link, what it points to is replaced.
        target = path.resolve()
        _check_target(target)
        _replace(target, content)
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConversationError(
            f"{path}: cannot be saved ({reason}), nothing was changed; choose another place, or free some space"
        ) from error


def load_conversation(path: Path) -> SavedConversation:
    """Reads what save_conversation wrote. Raises ConversationError for a file that is anything else."""
    fields = _parse(_read(path), path)
    if fields.get("format") != FORMAT:
        raise _fault(path, "format", fields.get("format"), repr(FORMAT), "give a file that /save wrote")
    version = fields.get("version")
    if isinstance(version, bool) or version != VERSION:
        raise _fault(path, "version", version, str(VERSION), "use the version of edgert that wrote it")
    for name in fields:
        if name not in _FIELDS:
            raise _fault(path, "field", name, f"one of {', '.join(_FIELDS)}")
    model, system, messages = fields.get("model"), fields.get("system"), fields.get("messages")
    if not isinstance(model, str):
        raise _fault(path, "model", model, "a text")
    if system is not None and not isinstance(system, str):
        raise _fault(path, "system", system, "a text or null")
    if not isinstance(messages, list):
        raise _fault(path, "messages", messages, "a list")
    return SavedConversation(
        model=model,
        system=system,
        sampling=_checked_sampling(path, fields.get("sampling")),
        messages=_checked_messages(path, messages),
    )


def _check_target(target: Path) -> None:
    """Raises ConversationError if something other than a saved conversation has the name."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device or pipe"
        raise ConversationError(f"{target}: found {kind}, expected a file or a new name; choose another name")
    with open(target, "rb") as file:
        beginning = file.read(len(_BEGINNING))
    if beginning not in (_BEGINNING, b""):
        raise ConversationError(
            f"{target}: found another file, expected a saved conversation or a new name; choose another name"
        )


def _replace(target: Path, content: bytes) -> None:
    """Writes beside the target and renames. What a killed process left under the hidden name is used again."""
    partial = target.parent / f".{target.name}.partial"
    fd = _locked(partial)
    try:
        try:
            os.truncate(fd, 0)
            if target.exists():
                os.fchmod(fd, stat.S_IMODE(target.stat().st_mode))
            with open(os.dup(fd), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(fd)
            os.rename(partial, target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    finally:
        os.close(fd)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _locked(path: Path) -> int:
    """The file, made if needed, with a lock on it that ends with the process. Raises OSError if another one has it."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        except FileNotFoundError:
            pass  # its owner renamed it in between
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _read(path: Path) -> bytes:
    try:
        # A pipe or a device must neither block nor go on for ever.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise ConversationError(f"{path}: found no regular file, expected one that /save wrote")
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConversationError(f"{path}: cannot be read ({reason}); check the path") from error
    if len(content) > MAX_FILE_BYTES:
        raise ConversationError(f"{path}: found over {MAX_FILE_BYTES} bytes, expected fewer; this is no conversation")
    return content


def _parse(content: bytes, path: Path) -> dict[str, Any]:
    try:
        value = json.loads(content.decode())
    except UnicodeDecodeError as error:
        raise ConversationError(f"{path}: found no UTF-8 at byte {error.start}, expected a file of /save") from None
    except RecursionError:
        raise ConversationError(f"{path}: found JSON nested too deeply, expected a file of /save") from None
    except ValueError as error:
        raise ConversationError(f"{path}: found no valid JSON ({error}), expected a file of /save") from None
    if not isinstance(value, dict):
        raise ConversationError(f"{path}: found a JSON {type(value).__name__}, expected an object as /save writes it")
    return value


def _checked_messages(path: Path, messages: list[Any]) -> list[dict[str, str]]:
    for i, message in enumerate(messages):
        where = f"messages[{i}]"
        if not isinstance(message, dict) or message.keys() != {"role", "content"}:
            raise _fault(path, where, message, "an object with role and content")
        if message["role"] != _ROLES[i % 2]:
            raise _fault(path, f"{where}.role", message["role"], repr(_ROLES[i % 2]))
        if not isinstance(message["content"], str):
            raise _fault(path, f"{where}.content", message["content"], "a text")
    if len(messages) % 2:
        raise _fault(path, "messages", f"{len(messages)} of them", "an answer to each question")
    return messages


def _checked_sampling(path: Path, sampling: object) -> SamplingOptions:
    if not isinstance(sampling, dict):
        raise _fault(path, "sampling", sampling, "an object")
    options = dict(sampling)
    bias = options.get("logit_bias")
    try:
        if bias is not None:
            options["logit_bias"] = token_biases(bias)
        if not isinstance(options.get("ignore_eos", False), bool):
            raise UsageError(f"ignore_eos: found {options['ignore_eos']!r:.60}, expected true or false")
        sampling_params("sampling", cast(SamplingOptions, options))
    except (UsageError, TypeError, OverflowError) as error:
        raise ConversationError(f"{path}: sampling: {error}") from None
    return cast(SamplingOptions, options)


def token_biases(value: object) -> dict[int, float]:
    """logit_bias of a JSON object: token ids are its keys. Raises UsageError."""
    if not isinstance(value, Mapping):
        raise UsageError(f'logit_bias: found {value!r:.60}, expected token ids and numbers such as {{"11": -2.5}}')
    biases = {}
    for token, bias in value.items():
        try:
            if isinstance(bias, bool) or not isinstance(bias, int | float):
                raise TypeError
            biases[int(token)] = float(bias)
        except (TypeError, ValueError, OverflowError):
            raise UsageError(
                f"logit_bias: found {token!r:.60}: {bias!r:.60}, expected a token id and a number"
            ) from None
    return biases


def _finite(sampling: SamplingOptions) -> dict[str, Any]:
    """The options with what JSON can write: a banned token has a bias of minus infinity."""
    options: dict[str, Any] = dict(sampling)
    if options.get("logit_bias"):
        options["logit_bias"] = {token: max(bias, BANNED_LOGIT_BIAS) for token, bias in options["logit_bias"].items()}
    return options


def _fault(path: Path, name: str, found: object, expected: str, remedy: str = "") -> ConversationError:
    return ConversationError(
        f"{path}: {name}: found {found!r:.60}, expected {expected}" + (f"; {remedy}" if remedy else "")
    )
