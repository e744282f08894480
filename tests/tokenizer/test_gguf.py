"""Tokenizers from GGUF vocabularies, against independent implementations and published vectors."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

import edgert
from edgert.errors import TokenizerError
from edgert.tokenizer import Tokenizer
from edgert.tokenizer.gguf import from_gguf
from edgert.tokenizer.pretokenizers import PRE_TOKENIZERS

from .small_tokenizers import (
    BYTE,
    CONTROL,
    NORMAL,
    SPACE,
    UNUSED,
    USER_DEFINED,
    byte_level,
    byte_level_metadata,
    random_text,
    sentencepiece_metadata,
    write_gguf,
)

VECTORS = ["gpt-2", "llama-spm", "phi-3", "qwen2", "qwen35", "deepseek-llm", "falcon"]


def build(metadata: dict[str, Any]) -> Tokenizer:
    tokenizer = from_gguf(metadata)
    assert tokenizer is not None
    return tokenizer


def test_every_vocabulary_with_vectors_is_tested(shared: Path) -> None:
    paths = (shared / "tokenizers" / "gguf").glob("*.inp")
    names = {path.name.removeprefix("ggml-vocab-").removesuffix(".gguf.inp") for path in paths}
    assert names == {*VECTORS, "bert-bge"}  # WordPiece: refused by name


@pytest.mark.parametrize("name", VECTORS)
def test_vectors(shared: Path, name: str) -> None:
    path = shared / "tokenizers" / "gguf" / f"ggml-vocab-{name}.gguf"
    tokenizer = edgert.load_tokenizer(path)
    texts = Path(f"{path}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = Path(f"{path}.out").read_text().split("\n")
    assert len(texts) > 40
    for text, line in zip(texts, lines, strict=True):
        ids = tokenizer.encode(text, add_special=False)
        assert ids == [int(number) for number in line.split()], repr(text)
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("model", ["stories260k/stories260K-f32.gguf", "llama2xs/llama2xs-279K-f32.gguf"])
def test_trained_sentencepiece_models(shared: Path, model: str) -> None:
    tokenizer = edgert.load_tokenizer(shared / "models" / model)
    ids = tokenizer.encode("Once upon a time")
    assert ids[0] == tokenizer.bos_id == 1
    assert tokenizer.decode(ids) == "Once upon a time"
    assert tokenizer.vocab_size == 512


def sentencepiece_reference(metadata: dict[str, Any], text: str) -> list[int]:
    """SentencePiece's BPE in its plainest form: merge the best neighbours, leftmost first, until none can."""
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    ids = {token: i for i, token in enumerate(tokens) if types[i] in (NORMAL, USER_DEFINED)}
    scores = metadata["tokenizer.ggml.scores"]
    symbols = list((" " + text).replace(" ", SPACE)) if text else []
    while True:
        pairs = [(scores[ids[a + b]], -i) for i, (a, b) in enumerate(itertools.pairwise(symbols)) if a + b in ids]
        if not pairs:
            break
        i = -max(pairs)[1]
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
    found: list[int] = []
    for symbol in symbols:
        found += [ids[symbol]] if symbol in ids else [3 + byte for byte in symbol.encode()]
    return found


@pytest.mark.parametrize("seed", range(20))
def test_sentencepiece_merges_by_score(seed: int) -> None:
    metadata = sentencepiece_metadata(seed)
    tokenizer = build(metadata)
    rng = random.Random(seed)
    for _ in range(100):
        text = "".join(rng.choices("abcdeé  xß😀\n", k=rng.randrange(20)))
        ids = tokenizer.encode(text, add_special=False)
        assert ids == sentencepiece_reference(metadata, text), f"seed {seed}: {text!r}"
        assert tokenizer.decode(ids) == text, f"seed {seed}: {text!r}"


def test_sentencepiece_space_prefix_and_bos() -> None:
    tokenizer = build(sentencepiece_metadata())
    assert tokenizer.encode("") == [1]
    assert tokenizer.adds_bos
    assert tokenizer.token_text(tokenizer.encode("a", add_special=False)[0]).startswith(SPACE)
    assert tokenizer.decode(tokenizer.encode(" a")) == " a"
    without = build(sentencepiece_metadata(add_space_prefix=False, add_bos_token=False))
    assert without.encode("a") == [without.token_id("a")]
    assert without.decode(without.encode(" a")) == " a"
    ends = build(sentencepiece_metadata(add_eos_token=True)).encode("a")
    assert (ends[0], ends[-1]) == (1, 2)


def test_byte_level_equals_the_tokenizer_it_was_made_from() -> None:
    tokenizer, original = build(byte_level_metadata()), byte_level()
    original.encode_special_tokens = True
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    for _ in range(300):
        text = random_text(rng)
        ids = tokenizer.encode(text)
        assert ids == original.encode(text, add_special_tokens=False).ids, f"seed {seed}: {text!r}"
        assert tokenizer.decode(ids) == text, f"seed {seed}: {text!r}"


# Words that each pattern gives, by hand from its definition.
WORDS = {
    "gpt-2": [("I'll be 12345  times!!\n", ["I", "'ll", " be", " 12345", " ", " times", "!!", "\n"])],
    "llama-bpe": [
        ("I'LL be 12345  times!!\n\n x", ["I", "'LL", " be", " ", "123", "45", " ", " times", "!!\n\n", " x"]),
        ("a\r\n\r\nb  \n c (d)", ["a", "\r\n\r\n", "b", "  \n", " c", " (", "d", ")"]),
        ("naïve-été", ["naïve", "-été"]),
    ],
    "qwen2": [("I'm 123\n\n  b", ["I", "'m", " ", "1", "2", "3", "\n\n", " ", " b"])],
    "qwen35": [("नमस्ते 12", ["नमस्ते", " ", "1", "2"])],
    "starcoder": [("ab12 c", ["ab", "1", "2", " c"])],
    "falcon": [("(a) 12345", ["(", "a", ")", " ", "123", "45"])],
    "deepseek-coder": [("a b\n12 東京", ["a", " b", "\n", "1", "2", " ", "東京"])],
    "gpt-4o": [("HelloWorld's 12345 ABCdef", ["Hello", "World's", " ", "123", "45", " ABCdef"])],
    "tekken": [("HelloWorld's 12 ABCdef", ["Hello", "World", "'s", " ", "1", "2", " ABCdef"])],
    "deepseek-v3": [
        ("I'll go(now) 12345\nカナ漢字x", ["I", "'ll", " go", "(now", ")", " ", "123", "45", "\n", "カナ漢字", "x"])
    ],
    "glm4": [("I'm 12345", ["I", "'m", " ", "123", "45"])],
    # Its punctuation pattern holds the ASCII letters too, so a word is cut before them.
    "deepseek-llm": [("a b\n123, ça", ["a", " b", "\n", "123", ",", " ç", "a"])],
}


@pytest.mark.parametrize("family", WORDS)
def test_pre_tokenizers_cut_words(family: str) -> None:
    backend = build(byte_level_metadata(family)).backend
    for text, words in WORDS[family]:
        assert [text[slice(*span)] for _, span in backend.pre_tokenizer.pre_tokenize_str(text)] == words


def test_families_that_take_whole_words() -> None:
    """llama-bpe takes a word that is a token whole, though no merge makes it."""
    metadata = byte_level_metadata()
    tokens = [*metadata["tokenizer.ggml.tokens"], "zqzqz"]
    types = [*metadata["tokenizer.ggml.token_type"], NORMAL]
    whole = build(byte_level_metadata("llama-bpe", tokens=tokens, token_type=types, add_bos_token=False))
    assert whole.encode("zqzqz") == [len(tokens) - 1]
    assert len(build(byte_level_metadata("gpt-2", tokens=tokens, token_type=types)).encode("zqzqz")) == 5
    assert build(byte_level_metadata("llama-bpe")).encode("")[:1] == [0]
    assert build(byte_level_metadata("qwen2")).encode("") == []


def test_token_types() -> None:
    metadata = byte_level_metadata()
    tokenizer = build(metadata)
    tokens = metadata["tokenizer.ggml.tokens"]
    think, padding = tokens.index("<think>"), tokens.index("[PAD]")
    assert tokenizer.special_ids == {0, 1, 2}
    assert tokenizer.encode("<|im_start|>", parse_special=True) == [1]
    assert 1 not in tokenizer.encode("<|im_start|>")
    assert tokenizer.encode("a<think>b")[1] == think, "a user-defined token is always parsed"
    assert tokenizer.decode([1, think]) == "<think>"
    assert tokenizer.decode([1, think], skip_special=False) == "<|im_start|><think>"
    assert tokenizer.decode([padding]) == ""
    assert tokenizer.stop_ids == {2}


def test_a_control_token_that_is_marked_as_an_ordinary_one() -> None:
    metadata = byte_level_metadata()
    types = [USER_DEFINED if kind == CONTROL else kind for kind in metadata["tokenizer.ggml.token_type"]]
    tokenizer = build(byte_level_metadata(token_type=types))
    assert tokenizer.special_ids == {0, 1, 2}
    assert 1 not in tokenizer.encode("<|im_start|>")


def test_tokens_that_are_there_twice_decode_by_id() -> None:
    metadata = byte_level_metadata()
    tokens = [*metadata["tokenizer.ggml.tokens"], "a"]
    tokenizer = build(byte_level_metadata(tokens=tokens, token_type=[*metadata["tokenizer.ggml.token_type"], NORMAL]))
    assert tokenizer.decode([tokens.index("a")]) == tokenizer.decode([len(tokens) - 1]) == "a"


def test_unknown_pre_tokenizer_is_named() -> None:
    with pytest.raises(TokenizerError, match=r"found 'shiny-new', expected one of .*gpt-2.*llama-bpe.*qwen2"):
        from_gguf(byte_level_metadata("shiny-new"))


def test_unknown_model_is_named() -> None:
    with pytest.raises(TokenizerError, match=r"model: found 'bert', expected one of gpt2, llama"):
        from_gguf(byte_level_metadata(model="bert"))


@pytest.mark.parametrize("model", [None, "none", "no_vocab"])
def test_no_vocabulary(model: str | None) -> None:
    assert from_gguf({} if model is None else {"tokenizer.ggml.model": model}) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": None}, "tokens: found no tokens"),
        ({"tokens": []}, "tokens: found no tokens"),
        ({"tokens": "abc"}, "tokens: found str, expected an array"),
        ({"tokens": ["a", 3]}, r"tokens\[1\]: found 3, expected str"),
        ({"token_type": [1, 1]}, "token_type: found 2 entries, expected"),
        ({"scores": [0.5]}, "scores: found 1 entries, expected"),
        ({"merges": ["a b", "ab"]}, r"merges\[1\]: found 'ab', expected two parts"),
        ({"merges": ["nowhere else"]}, "merges: found .*nowhere.* expected merges of tokens in the vocabulary"),
        ({"bos_token_id": 1 << 20}, "bos_token_id found 1048576, expected a token id below"),
        ({"eos_token_id": -1}, "eos_token_id found -1, expected a token id below"),
        ({"eot_token_id": "x"}, "eot_token_id found 'x', expected a token id below"),
        ({"add_bos_token": 3}, "add_bos_token: found 3, expected true or false"),
    ],
)
def test_broken_values(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        from_gguf(byte_level_metadata(**changes), "model.gguf")


def test_every_family_builds() -> None:
    for family in PRE_TOKENIZERS:
        tokenizer = build(byte_level_metadata(family, add_bos_token=False))
        assert tokenizer.decode(tokenizer.encode("Grüße, 東京 12345  x")) == "Grüße, 東京 12345  x", family


def test_from_a_file(tmp_path: Path) -> None:
    metadata = sentencepiece_metadata()
    path = write_gguf(tmp_path / "vocabulary", {"general.architecture": "unheard-of", **metadata})
    ids = edgert.load_tokenizer(path).encode("abc de")
    assert ids == build(metadata).encode("abc de")
    with pytest.raises(TokenizerError, match="found no tokenizer"):
        edgert.load_tokenizer(write_gguf(tmp_path / "none.gguf", {"general.architecture": "llama"}))


def test_unused_types_take_no_part_in_merges() -> None:
    """A text never becomes a byte, control or unused token by merging."""
    metadata = sentencepiece_metadata()
    for kind in (BYTE, CONTROL, UNUSED):
        types = [
            kind if len(token) > 1 else old
            for token, old in zip(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"], strict=True)
        ]
        ids = build(sentencepiece_metadata(token_type=types)).encode("abcde", add_special=False)
        assert [metadata["tokenizer.ggml.tokens"][i] for i in ids] == [SPACE, *"abcde"]


def test_chat_templates_go_with_the_configuration() -> None:
    one = {**byte_level_metadata(), "tokenizer.chat_template": "a"}
    assert build(one).config["chat_template"] == "a"
    two = build({**one, "tokenizer.chat_template.tool_use": "b"}).config["chat_template"]
    assert two == [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    assert "chat_template" not in build(byte_level_metadata()).config
