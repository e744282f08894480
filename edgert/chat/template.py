"""Chat templates: from messages to the text that the model was trained on."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from edgert.chat.messages import Message, check_messages, check_tools
from edgert.errors import ChatTemplateError
from edgert.files.checkpoint import Checkpoint
from edgert.files.opening import is_there, read_json, read_whole

if TYPE_CHECKING:
    from edgert.chat.limits import Limits
    from edgert.chat.sandbox import LimitedEnvironment

MAX_FILE_BYTES = 4 << 20
# For a model that brings none: nothing but names and line breaks.
PLAIN_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message.role | capitalize }}: {{ message.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
# Where an answer under the plain template ends.
PLAIN_STOP_TEXTS = ("\nUser:", "\nSystem:")


class Encoder(Protocol):
    """What this package asks of a tokenizer."""

    config: dict[str, Any]

    @property
    def bos_id(self) -> int | None:
        """Token that begins a text."""

    @property
    def eos_id(self) -> int | None:
        """Token that ends a text."""

    @property
    def adds_bos(self) -> bool:
        """Whether texts begin with bos_id."""

    def token_text(self, token: int) -> str:
        """The vocabulary's spelling of a token."""

    def encode(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids of a text."""


class ChatTemplate:
    """A model's chat template. Several threads may share one; it renders one conversation at a time."""

    def __init__(
        self,
        source: str | Mapping[str, str] | None,
        bos_token: str = "",
        eos_token: str = "",
        *,
        limits: Limits | None = None,
        where: str = "chat template",
    ) -> None:
        """`source`: jinja2 text, several by name ("default", "tool_use"), or None for the plain template. `where` it
        comes from: errors begin with that."""
        self.is_plain = source is None
        self.stop_texts: tuple[str, ...] = PLAIN_STOP_TEXTS if source is None else ()
        if source is None:
            source = PLAIN_TEMPLATE
        self._sources = {"default": source} if isinstance(source, str) else dict(source)
        if not self._sources:
            raise ChatTemplateError("chat template: found an empty set of templates, expected at least one")
        self._bos_token = bos_token
        self._eos_token = eos_token
        self._limits = limits
        self._where = where
        self._environment: LimitedEnvironment | None = None
        self._compiled: dict[str, Any] = {}
        self._lock = threading.Lock()

    def source(self, *, for_tools: bool = False) -> str:
        """The jinja2 text that is used, with tools or without."""
        return self._sources[self._name(for_tools)]

    def render(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The conversation as the model's text.

        `add_generation_prompt` opens the assistant's turn; `tools` are JSON schemas; `variables` are what else the
        template knows (such as enable_thinking). Raises UsageError for messages that are none, and ChatTemplateError,
        with the template's line, if the template is broken, refuses the conversation or goes beyond its limits.
        """
        # transformers, too, defines tools and documents as None, and lets a variable replace a special token.
        values: dict[str, Any] = {"bos_token": self._bos_token, "eos_token": self._eos_token, "documents": None}
        values.update(variables or {})
        values["messages"] = check_messages(messages)
        values["tools"] = check_tools(tools)
        values["add_generation_prompt"] = add_generation_prompt
        with self._lock:
            return self._render(self._name(bool(tools)), values)

    def _name(self, for_tools: bool) -> str:
        if for_tools and "tool_use" in self._sources:
            return "tool_use"
        return "default" if "default" in self._sources else next(iter(self._sources))

    def _render(self, name: str, values: dict[str, Any]) -> str:
        # Imported when first needed: jinja2 takes a good part of the time that importing edgert may take.
        from jinja2 import TemplateSyntaxError

        from edgert.chat.limits import Budget, LimitError, Limits
        from edgert.chat.sandbox import LimitedEnvironment

        limits = self._limits or Limits()
        if self._environment is None:
            self._environment = LimitedEnvironment(limits)
        environment = self._environment
        try:
            if name not in self._compiled:
                self._compiled[name] = environment.from_string(self._checked(name, limits))
            environment.budget = Budget(limits)
            pieces, num_chars = [], 0
            for piece in self._compiled[name].generate(values):
                num_chars += len(piece)
                if num_chars > limits.output_chars:
                    raise LimitError(f"more than {limits.output_chars} characters of output")
                pieces.append(piece)
            return "".join(pieces)
        except ChatTemplateError:
            raise
        except LimitError as error:
            raise self._error(error, f"found {error}, expected less; use another template") from None
        except TemplateSyntaxError as error:
            raise self._error(
                error, f"found an error ({error.message}), expected jinja2; use another one", error.lineno
            ) from error
        except RecursionError as error:
            raise self._error(
                error, "found calls or brackets nested too deeply, expected a few levels; use another one"
            ) from None
        except Exception as error:  # a template can raise whatever Python can
            raise self._error(
                error, f"found an error ({_short(error)}), expected a text; check the messages, or use another template"
            ) from error

    def _checked(self, name: str, limits: Limits) -> str:
        source = self._sources[name]
        if len(source) > limits.source_chars:
            raise ChatTemplateError(
                f"{self._where}: found {len(source)} characters, expected at most {limits.source_chars}; "
                "use another one"
            )
        return source

    def _error(self, error: BaseException, reason: str, line: int | None = None) -> ChatTemplateError:
        line = line or _template_line(error.__traceback__)
        return ChatTemplateError(f"{self._where}{f', line {line}' if line else ''}: {reason}")


def load_chat_template(source: Checkpoint | str | os.PathLike[str], tokenizer: Encoder | None) -> ChatTemplate:
    """The chat template of a model: its file chat_template.jinja, else tokenizer_config.json or the GGUF metadata.

    A model without one gets a plain template (`is_plain` is true then). Raises ChatTemplateError for an entry that is
    no template; a template that does not compile is an error when it is first used.
    """
    found = _find_source(source, tokenizer)
    where = f"{source.path if isinstance(source, Checkpoint) else source}: chat template"
    if tokenizer is None:
        return ChatTemplate(found, where=where)
    texts = ["" if token is None else tokenizer.token_text(token) for token in (tokenizer.bos_id, tokenizer.eos_id)]
    if found is None and not tokenizer.adds_bos:
        texts[0] = ""
    return ChatTemplate(found, texts[0], texts[1], where=where)


def encode_chat(
    tokenizer: Encoder,
    template: ChatTemplate,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any] | None = None,
) -> list[int]:
    """Token ids of the rendered conversation.

    Special tokens in the rendered text are parsed and none are added: the template writes its own bos token.
    """
    text = template.render(messages, add_generation_prompt, tools, variables)
    return tokenizer.encode(text, add_special=False, parse_special=True)


def _find_source(source: Checkpoint | str | os.PathLike[str], tokenizer: Encoder | None) -> str | dict[str, str] | None:
    if isinstance(source, Checkpoint):
        if source.kind == "gguf":
            return _from_gguf(source)
        source = source.path
    folder = Path(source)
    if not folder.is_dir():
        folder = folder.parent
    path = folder / "chat_template.jinja"
    if is_there(path):
        return _read_text(path)
    entry = tokenizer.config.get("chat_template") if tokenizer is not None else None
    if entry is None and is_there(folder / "chat_template.json"):
        entry = read_json(folder / "chat_template.json").get("chat_template")
    return _checked_entry(entry, f"{folder}: chat_template")


def _from_gguf(checkpoint: Checkpoint) -> str | dict[str, str] | None:
    prefix, metadata = "tokenizer.chat_template", checkpoint.metadata
    named = {key[len(prefix) + 1 :]: value for key, value in metadata.items() if key.startswith(prefix + ".")}
    default = metadata.get(prefix)
    if named and default is not None:
        named["default"] = default
    return _checked_entry(named or default, f"{checkpoint.path}: {prefix}")


def _checked_entry(entry: Any, where: str) -> str | dict[str, str] | None:
    """A template, or several by name: a string, a mapping, or a list of {"name", "template"}."""
    if entry is None or isinstance(entry, str):
        return entry
    if not isinstance(entry, (list, dict)):
        raise ChatTemplateError(
            f"{where}: found {type(entry).__name__}, expected a template, or a list of named ones; get the file again"
        )
    if isinstance(entry, list):
        entry = {item.get("name"): item.get("template") for item in entry if isinstance(item, dict)}
    named = {name: text for name, text in entry.items() if isinstance(name, str) and isinstance(text, str)}
    if not named or len(named) < len(entry):
        raise ChatTemplateError(
            f"{where}: found {entry!r:.80}, expected a template, or a list of named ones; get the file again"
        )
    return named


def _read_text(path: Path) -> str:
    try:
        return read_whole(path, MAX_FILE_BYTES).decode()
    except UnicodeDecodeError as error:
        raise ChatTemplateError(
            f"{path}: found no UTF-8 at byte {error.start}, expected a text file; get it again"
        ) from None


def _short(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:297]}..."


def _template_line(traceback: TracebackType | None) -> int | None:
    """The line of the template where an error came from: jinja2 gives its frames the template's lines."""
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line
