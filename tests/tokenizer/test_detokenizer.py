"""Streams of tokens as text: whole characters, the same text as decoding at once, constant work per token."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import edgert
from edgert.tokenizer import Tokenizer
from edgert.tokenizer.gguf import from_gguf
from edgert.tokenizer.huggingface import from_json

from .small_tokenizers import byte_level, byte_level_metadata, random_text, sentencepiece_metadata

KINDS = ["byte_level", "sentencepiece", "tokenizer.json"]


def make(kind: str) -> Tokenizer:
    if kind == "tokenizer.json":
        return from_json(byte_level().to_str().encode(), {}, "test")
    tokenizer = from_gguf(byte_level_metadata() if kind == "byte_level" else sentencepiece_metadata())
    assert tokenizer is not None
    return tokenizer


@pytest.mark.parametrize("kind", KINDS)
def test_any_tokens_stream_as_they_decode(kind: str) -> None:
    """Random ids: broken UTF-8, special tokens and ids beyond the vocabulary among them."""
    tokenizer = make(kind)
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    for _ in range(300):
        ids = [rng.randrange(tokenizer.vocab_size + 5) for _ in range(rng.randrange(12))]
        for skip_special in (True, False):
            for continues in (True, False):
                stream = tokenizer.detokenizer(skip_special=skip_special, continues=continues)
                pieces = [stream.push(token) for token in ids] + [stream.finish()]
                whole = tokenizer.decode(ids, skip_special, continues=continues)
                assert "".join(pieces) == whole, f"seed {seed}: {ids}"
                kept = [token for token in ids if not (skip_special and tokenizer.is_special(token))]
                spoken = b"".join(map(tokenizer.token_bytes, kept)).decode("utf-8", "replace")
                strip = tokenizer.leading_spaces and not continues and spoken.startswith(" ")
                assert whole == (spoken[1:] if strip else spoken), f"seed {seed}: {ids}"


@pytest.mark.parametrize("kind", KINDS)
def test_no_piece_ends_inside_a_character(kind: str) -> None:
    tokenizer = make(kind)
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    for _ in range(200):
        text = random_text(rng)
        text = text.replace("\u2581", "") if kind == "sentencepiece" else text
        stream = tokenizer.detokenizer()
        sent = ""
        for token in tokenizer.encode(text, add_special=False):
            piece = stream.push(token)
            assert "\ufffd" not in piece or "\ufffd" in text, f"seed {seed}: {text!r}"
            sent += piece
            assert text.startswith(sent), f"seed {seed}: {text!r}"
        assert sent == text, f"seed {seed}: {text!r}"
        assert stream.finish() == ""


def test_a_character_in_several_tokens_comes_with_its_last() -> None:
    tokenizer = make("sentencepiece")
    ids = tokenizer.encode("😀", add_special=False)
    assert len(ids) == 5
    stream = tokenizer.detokenizer()
    assert [stream.push(token) for token in ids] == ["", "", "", "", "😀"]
    stream = tokenizer.detokenizer()
    assert "".join(stream.push(token) for token in ids[:-1]) == ""
    assert stream.finish() == "\ufffd"


def test_the_space_in_front() -> None:
    """At the beginning of a text SentencePiece's space goes, in the middle it stays."""
    tokenizer = make("sentencepiece")
    ids = tokenizer.encode("a b")
    assert tokenizer.decode(ids) == "a b"
    assert tokenizer.decode(ids, continues=True) == " a b"
    stream = tokenizer.detokenizer(continues=True)
    assert "".join(stream.push(token) for token in ids) == " a b"
    assert tokenizer.decode(tokenizer.encode("  a")) == "  a"


def test_ids_beyond_the_vocabulary_are_nothing() -> None:
    for kind in KINDS:
        tokenizer = make(kind)
        for token in (tokenizer.vocab_size, 1 << 40, -1):
            assert tokenizer.decode([token]) == ""
            assert tokenizer.token_text(token) == ""
            assert tokenizer.token_bytes(token) == b""
            assert tokenizer.detokenizer().push(token) == ""


def test_work_per_token_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each push looks at one token, however many came before."""
    tokenizer = make("byte_level")
    asked: list[int] = []
    original = Tokenizer.token_bytes

    def counting(self: Tokenizer, token: int) -> bytes:
        asked.append(token)
        return original(self, token)

    monkeypatch.setattr(Tokenizer, "token_bytes", counting)
    stream = tokenizer.detokenizer()
    for count in range(1, 1000):
        stream.push(70)
        assert len(asked) == count


def test_bundled_model() -> None:
    folder = Path(edgert.__file__).parent / "assets" / "default"
    if not (folder / "tokenizer.json").is_file():
        pytest.skip("this installation has no bundled model")
    tokenizer = edgert.load_tokenizer(folder)
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    for _ in range(200):
        text = random_text(rng)
        ids = tokenizer.encode(text)
        assert not tokenizer.special_ids.intersection(ids), f"seed {seed}: {text!r}"
        stream = tokenizer.detokenizer()
        assert "".join(map(stream.push, ids)) == tokenizer.decode(ids) == text, f"seed {seed}: {text!r}"
