"""What was said, and how the next answer is drawn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from edgert.chat import encode_chat
from edgert.cli.chat.saved import SavedConversation, token_biases
from edgert.engine.params import SamplingOptions, SamplingParams, sampling_params
from edgert.engine.prompts import require_tokenizer
from edgert.errors import UsageError

if TYPE_CHECKING:
    from edgert.engine.stream import ChunkStream
    from edgert.llm import LLM

# logprobs are not shown in a chat.
OPTIONS = tuple(name for name in SamplingOptions.__annotations__ if name != "logprobs")
_SWITCHES = {"on": True, "true": True, "off": False, "false": False}


class Conversation:
    """The messages, the system message and the sampling of a chat with a model."""

    def __init__(
        self,
        llm: LLM,
        sampling: SamplingOptions,
        *,
        system: str | None,
        variables: Mapping[str, Any] | None = None,
    ) -> None:
        """variables: what else the chat template knows."""
        self.llm = llm
        self._variables = variables
        self.sampling = sampling
        self.system = system
        # Questions and answers in turn; an answer is last unless one is being written.
        self.messages: list[dict[str, str]] = []

    @property
    def all_messages(self) -> list[dict[str, str]]:
        """What the chat template gets."""
        start = [{"role": "system", "content": self.system}] if self.system is not None else []
        return [*start, *self.messages]

    @property
    def is_repeatable(self) -> bool:
        """Whether the same question gets the same answer: the seed is fixed, or nothing is drawn."""
        params = SamplingParams(**self.sampling)
        return params.seed not in (None, -1) or params.temperature == 0

    def stream(self) -> ChunkStream:
        """The answer to the last message, as it is written."""
        return self.llm.stream_chat(self.all_messages, chat_template_kwargs=self._variables, **self.sampling)

    def num_tokens(self) -> int:
        """Tokens of the conversation, as the model reads it; 0 before the first question."""
        if not self.messages:
            return 0
        tokenizer = require_tokenizer(self.llm.tokenizer)
        ids = encode_chat(
            tokenizer,
            self.llm.chat_template,
            self.all_messages,
            add_generation_prompt=False,
            variables=self._variables,
        )
        return len(ids)

    def split(self, text: str) -> list[tuple[int, str]]:
        """The tokens of a text: their ids, and what each stands for."""
        tokenizer = require_tokenizer(self.llm.tokenizer)
        ids = tokenizer.encode(text, add_special=False)
        pieces = [tokenizer.decode([token], skip_special=False, continues=True) for token in ids]
        # A part of a character shows as the vocabulary spells it.
        return [
            (token, tokenizer.token_text(token) if "\ufffd" in piece else piece)
            for token, piece in zip(ids, pieces, strict=True)
        ]

    def clear(self) -> None:
        """Begins anew; the system message stays."""
        self.messages = []
        self.llm.clear_cache()

    def option(self, key: str) -> object:
        """The value of a sampling option, set or by default. Raises UsageError for a key that does not exist."""
        if key not in OPTIONS:
            raise UsageError(f"/set: found {key!r:.60}, expected one of: {', '.join(OPTIONS)}")
        return getattr(SamplingParams(**self.sampling), key)

    def set_option(self, key: str, text: str) -> None:
        """Changes a sampling option. Raises UsageError for a key that does not exist or a value out of range."""
        self.option(key)
        try:
            changed = cast(SamplingOptions, {**self.sampling, key: _parse_value(key, text)})
            sampling_params("/set", changed).check_vocabulary(self.llm.vocab_size)
        except OverflowError:
            raise UsageError(f"{key}: found {text:.60}, expected a smaller number") from None
        self.sampling = changed

    def saved(self) -> SavedConversation:
        """As a file holds it."""
        return SavedConversation(
            model=str(self.llm.path), system=self.system, sampling=self.sampling, messages=self.messages
        )

    def restore(self, saved: SavedConversation) -> None:
        """Goes on from what a file holds. Raises UsageError where its sampling does not fit the model."""
        SamplingParams(**saved.sampling).check_vocabulary(self.llm.vocab_size)
        self.system, self.sampling = saved.system, saved.sampling
        self.messages = list(saved.messages)


def _parse_value(key: str, text: str) -> Any:
    """A value as it was typed: JSON, and for people also none, on, off, and texts without quotes."""
    if text == "none":
        return None
    value: Any = text
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
    if key == "stop":
        return value if isinstance(value, str | list) else text
    if key == "logit_bias":
        return token_biases(value)
    if key == "ignore_eos":
        if text not in _SWITCHES:
            raise UsageError(f"ignore_eos: found {text!r:.60}, expected on or off")
        return _SWITCHES[text]
    return text if isinstance(value, bool) else value
