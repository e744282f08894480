"""What each token stands for: the decoder of a tokenizer, compiled into bytes per token.

A text is the bytes of its tokens, one after another, read as UTF-8 (bytes that are no UTF-8 become U+FFFD), less the
spaces that SentencePiece puts in front of every text. So a token's bytes never depend on its neighbours, and a stream
costs the same per token however long it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from edgert.errors import TokenizerError

SPACE_MARK = "\u2581"  # SentencePiece writes a space as this character
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_CONTROL_TOKEN = re.compile(
    r"<[|\uff5c][^<>]*\w[^<>]*[|\uff5c]>|</?s>|<(unk|pad|mask|bos|eos|start_of_turn|end_of_turn)>"
)


def _byte_alphabet() -> dict[str, int]:
    """The 256 characters of byte-level BPE: printable Latin-1 stands for itself, the others follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + i): byte for i, byte in enumerate(others)})
    return alphabet


BYTE_ALPHABET = _byte_alphabet()


def byte_token(text: str) -> int | None:
    """The byte that a token such as "<0x0A>" stands for, or None."""
    match = _BYTE_TOKEN.fullmatch(text)
    return int(match.group(1), 16) if match else None


def is_control_spelling(text: str) -> bool:
    """Whether a token is spelled like a control token: files in the wild mark many of those as ordinary ones."""
    return _CONTROL_TOKEN.fullmatch(text) is not None


def byte_level_bytes(text: str) -> bytes:
    """Bytes of a byte-level token; a text outside the byte alphabet is itself."""
    try:
        return bytes([BYTE_ALPHABET[character] for character in text])
    except KeyError:
        return text.encode()


@dataclass(frozen=True, slots=True)
class PieceRules:
    """How the text of a vocabulary entry becomes bytes, and how many leading spaces a whole text loses."""

    to_bytes: Callable[[str], bytes]
    leading_spaces: int = 0
    added_are_literal: bool = True  # an added token stands for its own text, whatever to_bytes would make of it


BYTE_LEVEL = PieceRules(byte_level_bytes)


def sentencepiece_rules(leading_spaces: int) -> PieceRules:
    """Rules of SentencePiece: U+2581 is a space, "<0x0A>" a byte."""

    def to_bytes(text: str) -> bytes:
        byte = byte_token(text)
        return bytes([byte]) if byte is not None else text.replace(SPACE_MARK, " ").encode()

    return PieceRules(to_bytes, leading_spaces, added_are_literal=False)


def compile_decoder(decoder: Mapping[str, Any] | None, source: str) -> PieceRules:
    """Rules of the `decoder` section of a tokenizer.json.

    None stands for the library's rule: tokens with a space between them. Raises TokenizerError, naming the step, for
    a decoder whose tokens cannot be read one by one (WordPiece, CTC, BPEDecoder, regular expressions).
    """
    if decoder is None:
        return PieceRules(lambda text: b" " + text.encode(), 1, added_are_literal=False)
    steps = decoder["decoders"] if decoder.get("type") == "Sequence" else [decoder]
    if any(step.get("type") == "ByteLevel" for step in steps):
        return BYTE_LEVEL
    replacements: list[tuple[str, str]] = []
    has_bytes, is_fused, leading_spaces = False, False, 0
    for step in steps:
        kind = step.get("type")
        if kind == "Replace" and isinstance(step.get("pattern"), dict) and "String" in step["pattern"]:
            replacements.append((step["pattern"]["String"], step["content"]))
        elif kind == "ByteFallback":
            has_bytes = True
        elif kind == "Fuse":
            is_fused = True
        elif kind == "Strip" and is_fused and step.get("content") == " " and not step.get("stop"):
            leading_spaces += int(step.get("start", 0))
        elif kind == "Metaspace":
            replacements.append((step.get("replacement", SPACE_MARK), " "))
            has_prefix = step.get("prepend_scheme", "always") != "never" and step.get("add_prefix_space", True)
            leading_spaces += 1 if has_prefix else 0
        else:
            raise TokenizerError(
                f"{source}: decoder step {kind!r} found ({step}), expected ByteLevel, Metaspace, ByteFallback, Fuse, "
                f"Replace of a string, or Strip of leading spaces after Fuse; use the model's tokenizer of another kind"
            )

    def to_bytes(text: str) -> bytes:
        byte = byte_token(text) if has_bytes else None
        if byte is not None:
            return bytes([byte])
        for old, new in replacements:
            text = text.replace(old, new)
        return text.encode()

    return PieceRules(to_bytes, leading_spaces, added_are_literal=False)
