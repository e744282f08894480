"""The tokenizer that the engine uses, whatever file it came from."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tokenizers

from edgert.errors import TokenizerError
from edgert.tokenizer.detokenizer import Detokenizer
from edgert.tokenizer.pieces import PieceRules

_LONE_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids of the tokens with a meaning of their own; None where the model has none."""

    bos: int | None = None
    eos: int | None = None
    unk: int | None = None
    pad: int | None = None
    adds_bos: bool = False  # `encode` puts bos in front, beyond what the backend does by itself
    stop: frozenset[int] = field(default_factory=frozenset)  # ends of text, turn and message that the file names


class Tokenizer:
    """Text to token ids and back. Several threads may share one."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        rules: PieceRules,
        special: SpecialTokens,
        *,
        texts: Mapping[int, str] | None = None,
        silent: frozenset[int] = frozenset(),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """`texts`: entries that the backend does not know by their id; `silent`: ids that decode to nothing;
        `config`: what tokenizer_config.json holds."""
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._rules = rules
        self._special = special
        self._texts = dict(texts or {})
        self.config: dict[str, Any] = dict(config or {})
        added = backend.get_added_tokens_decoder()
        self._special_ids = frozenset(token for token, entry in added.items() if entry.special)
        self._literal_ids = frozenset(added) if rules.added_are_literal else self._special_ids
        highest = max(backend.get_vocab(with_added_tokens=True).values(), default=-1)
        self._vocab_size = max([highest, *self._texts]) + 1
        self._bytes: dict[int, bytes] = dict.fromkeys(silent, b"")
        # Whether special tokens are parsed is a state of the backend, so it is set and used under one lock.
        self._lock = threading.Lock()

    @property
    def vocab_size(self) -> int:
        """One more than the highest token id."""
        return self._vocab_size

    @property
    def bos_id(self) -> int | None:
        """Token that begins a text."""
        return self._special.bos

    @property
    def eos_id(self) -> int | None:
        """Token that ends a text."""
        return self._special.eos

    @property
    def unk_id(self) -> int | None:
        """Token for what the vocabulary cannot write."""
        return self._special.unk

    @property
    def pad_id(self) -> int | None:
        """Token that fills up batches."""
        return self._special.pad

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of the control tokens: parsed only with `parse_special`, left out of texts with `skip_special`."""
        return self._special_ids

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that the tokenizer's own file names as the end of a text, a turn or a message."""
        return self._special.stop

    @property
    def leading_spaces(self) -> int:
        """Number of spaces that a whole text loses at its beginning (SentencePiece puts one there)."""
        return self._rules.leading_spaces

    @property
    def backend(self) -> tokenizers.Tokenizer:
        """The object of the tokenizers library below."""
        return self._backend

    @property
    def adds_bos(self) -> bool:
        """Whether `encode` begins a text with `bos_id` by default."""
        return self.bos_id is not None and self.encode("")[:1] == [self.bos_id]

    def encode(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids of `text`.

        `add_special` adds what the model expects around a text (its bos token, as a rule). `parse_special` turns
        "<|im_start|>" and the like into their tokens; without it they are plain text, so that what a user typed cannot
        act as a control token. Added tokens that are no control tokens ("<think>", runs of spaces) are always parsed.

        Raises TokenizerError where the steps of the model's file fail, such as a pattern that does not come to an end.
        """
        text = _LONE_SURROGATES.sub("\ufffd", text)
        with self._lock:
            self._backend.encode_special_tokens = not parse_special
            try:
                ids: list[int] = self._backend.encode(text, add_special_tokens=add_special).ids
            except BaseException as error:
                if not is_library_error(error):
                    raise
                raise TokenizerError(
                    f"tokenizer: found an error in a text of {len(text)} characters ({error}), expected tokens; "
                    "use another model"
                ) from None
        bos = self._special.bos
        if add_special and self._special.adds_bos and bos is not None and ids[:1] != [bos]:
            ids.insert(0, bos)
        return ids

    def decode(self, ids: Iterable[int], skip_special: bool = True, *, continues: bool = False) -> str:
        """Text of `ids`; ids beyond the vocabulary stand for nothing.

        `skip_special` leaves control tokens out. `continues`: the ids follow others, so a leading space is kept.
        """
        stream = Detokenizer(self, skip_special=skip_special, continues=continues)
        pieces = [stream.push(int(token)) for token in ids]
        pieces.append(stream.finish())
        return "".join(pieces)

    def detokenizer(self, *, skip_special: bool = True, continues: bool = False) -> Detokenizer:
        """A stream that gives the same text as `decode`, token by token."""
        return Detokenizer(self, skip_special=skip_special, continues=continues)

    def is_special(self, token: int) -> bool:
        """Whether `token` is a control token."""
        return token in self._special_ids

    def token_text(self, token: int) -> str:
        """The vocabulary's spelling of `token` ("Ġthe", "▁the", "<0x0A>"); "" beyond the vocabulary."""
        text = self._texts.get(token)
        if text is None:
            text = self._backend.id_to_token(token) if 0 <= token < self._vocab_size else None
        return text or ""

    def token_bytes(self, token: int) -> bytes:
        """The bytes of a text that `token` stands for; b"" beyond the vocabulary."""
        known = self._bytes.get(token)
        if known is None:
            text = self.token_text(token)
            known = text.encode() if token in self._literal_ids or not text else self._rules.to_bytes(text)
            if 0 <= token < self._vocab_size:
                self._bytes[token] = known
        return known

    def token_id(self, text: str) -> int | None:
        """Id of the vocabulary entry spelled `text`, or None."""
        found: int | None = self._backend.token_to_id(text)
        return found

    def to_json(self) -> str:
        """The tokenizer as the text of a tokenizer.json."""
        with self._lock:
            self._backend.encode_special_tokens = False
            text: str = self._backend.to_str()
        return text


def is_library_error(error: BaseException) -> bool:
    """Whether the tokenizers library raised this: an Exception, or a panic of its own, which is none."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def check_id(value: Any, vocab_size: int, name: str, source: str) -> int | None:
    """`value` as a token id, None if absent. Raises TokenizerError if it is no id of the vocabulary."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < vocab_size:
        raise TokenizerError(
            f"{source}: {name} found {value!r}, expected a token id below {vocab_size}; "
            "the file is damaged, get it again"
        )
    return value
