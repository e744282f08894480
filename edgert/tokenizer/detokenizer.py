"""Text from a stream of tokens, whole characters only."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgert.tokenizer.tokenizer import Tokenizer

_UTF8_DECODER = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Turns tokens into text as they come; belongs to one stream and one thread.

    The pieces that `push` returns and the one of `finish`, put together, are `Tokenizer.decode` of the same tokens
    with the same options. A piece never ends inside a character: bytes wait until theirs is complete. The work per
    token does not grow with the text.
    """

    __slots__ = ("_decoder", "_leading_spaces", "_skip_special", "_tokenizer")

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True, continues: bool = False) -> None:
        """`continues`: the tokens follow others, so a leading space belongs to the text."""
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._decoder = _UTF8_DECODER(errors="replace")
        self._leading_spaces = 0 if continues else tokenizer.leading_spaces

    def push(self, token: int) -> str:
        """The text that `token` completes; "" while a character is incomplete."""
        if self._skip_special and self._tokenizer.is_special(token):
            return ""
        return self._strip(self._decoder.decode(self._tokenizer.token_bytes(token)))

    def finish(self) -> str:
        """The rest at the end of the stream: U+FFFD if a character stayed incomplete, else ""."""
        return self._strip(self._decoder.decode(b"", final=True))

    def _strip(self, text: str) -> str:
        while self._leading_spaces and text:
            if not text.startswith(" "):
                self._leading_spaces = 0
                break
            text = text[1:]
            self._leading_spaces -= 1
        return text
