"""tokenizer.json as it is, with what tokenizer_config.json says, against the tokenizers library itself."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

import edgert
from edgert.errors import FileFormatError, ModelNotFoundError, TokenizerError
from edgert.tokenizer import SpecialTokens, Tokenizer, load, tokenizer_files
from edgert.tokenizer.gguf import from_gguf
from edgert.tokenizer.huggingface import from_json
from edgert.tokenizer.pieces import BYTE_LEVEL

from .small_tokenizers import CORPUS, byte_level, random_text, sentencepiece_metadata, with_bos


def write(folder: Path, tokenizer: tokenizers.Tokenizer, config: dict[str, Any] | None = None) -> Path:
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def test_special_tokens_are_parsed_on_request_only(tmp_path: Path) -> None:
    tokenizer = edgert.load_tokenizer(write(tmp_path, byte_level()))
    text = "<|im_start|>user<|im_end|>"
    assert not tokenizer.special_ids.intersection(tokenizer.encode(text))
    assert tokenizer.decode(tokenizer.encode(text)) == text
    ids = tokenizer.encode(text, parse_special=True)
    assert (ids[0], ids[-1]) == (1, 2)
    assert tokenizer.decode(ids) == "user"
    assert tokenizer.decode(ids, skip_special=False) == text
    # And again: one call leaves no trace in the next.
    assert not tokenizer.special_ids.intersection(tokenizer.encode(text))


def test_control_tokens_marked_as_ordinary_ones(tmp_path: Path) -> None:
    backend = byte_level()
    backend.add_tokens([AddedToken("<|python|>", normalized=False), AddedToken("</s>", normalized=False, rstrip=True)])
    tokenizer = edgert.load_tokenizer(write(tmp_path, backend))
    for text in ("<|python|>", "</s>"):
        token = tokenizer.token_id(text)
        assert token in tokenizer.special_ids
        assert token not in tokenizer.encode(text + "  x")
        assert tokenizer.decode(tokenizer.encode(text + "  x")) == text + "  x"
        assert tokenizer.encode(text, parse_special=True) == [token]
    assert tokenizer.encode("<think>") == [tokenizer.token_id("<think>")]


def test_names_in_the_configuration(tmp_path: Path) -> None:
    config = {
        "bos_token": {"content": "<|endoftext|>"},
        "eos_token": "<|im_end|>",
        "unk_token": None,
        "pad_token": "?!",
    }
    tokenizer = edgert.load_tokenizer(write(tmp_path, byte_level(), config))
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id, tokenizer.pad_id) == (0, 2, None, None)
    assert tokenizer.stop_ids == {2}
    assert tokenizer.config["eos_token"] == "<|im_end|>"
    assert tokenizer.vocab_size == byte_level().get_vocab_size()


@pytest.mark.parametrize("has_post_processor", [False, True])
@pytest.mark.parametrize("add_bos_token", [None, False, True])
def test_bos(tmp_path: Path, has_post_processor: bool, add_bos_token: bool | None) -> None:
    """The post-processor of tokenizer.json stands; add_bos_token can add what it lacks."""
    backend = with_bos(byte_level(), "<|endoftext|>") if has_post_processor else byte_level()
    config: dict[str, Any] = {"bos_token": "<|endoftext|>"}
    if add_bos_token is not None:
        config["add_bos_token"] = add_bos_token
    tokenizer = edgert.load_tokenizer(write(tmp_path, backend, config))
    expected = 1 if has_post_processor or add_bos_token else 0
    assert tokenizer.encode("hello").count(0) == expected
    assert tokenizer.encode("").count(0) == expected
    assert tokenizer.adds_bos == bool(expected)
    assert 0 not in tokenizer.encode("hello", add_special=False)
    assert tokenizer.encode("<|endoftext|>x", parse_special=True).count(0) == (2 if has_post_processor else 1)


def test_truncation_and_padding_of_the_file_are_off(tmp_path: Path) -> None:
    backend = byte_level()
    backend.enable_truncation(4)
    backend.enable_padding(length=50)
    tokenizer = edgert.load_tokenizer(write(tmp_path, backend))
    assert tokenizer.decode(tokenizer.encode(CORPUS)) == CORPUS
    assert len(tokenizer.encode("a")) == 1


def metaspace() -> tokenizers.Tokenizer:
    vocabulary = {"<unk>": 0, "\u2581": 1, **{letter: i for i, letter in enumerate("abc", 2)}, "\u2581a": 5, "bc": 6}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, [("\u2581", "a"), ("b", "c")], unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return backend


def llama_style() -> tokenizers.Tokenizer:
    tokenizer = from_gguf(sentencepiece_metadata())
    assert tokenizer is not None
    return tokenizer.backend


@pytest.mark.parametrize("make", [byte_level, llama_style, metaspace])
def test_decodes_as_the_library_does(make: Any) -> None:
    """For text that the vocabulary can write; where bytes are broken, ours follow UTF-8's own rule."""
    backend = make()
    tokenizer = from_json(backend.to_str().encode(), {}, "test")
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    for _ in range(200):
        text = random_text(rng) if make is byte_level else "".join(rng.choices("abc ", k=rng.randrange(12))).strip()
        ids = tokenizer.encode(text)
        assert ids == backend.encode(text).ids if make is not byte_level else True
        assert tokenizer.decode(ids, skip_special=False) == backend.decode(ids, skip_special_tokens=False), (
            f"seed {seed}: {text!r}"
        )


def test_a_decoder_that_cannot_stream_is_named() -> None:
    backend = byte_level()
    backend.decoder = decoders.CTC()
    with pytest.raises(TokenizerError, match="decoder step 'CTC' found"):
        from_json(backend.to_str().encode(), {}, "test")


def test_no_decoder_is_words_with_spaces() -> None:
    backend = tokenizers.Tokenizer(models.WordLevel({"hello": 0, "world": 1, "?": 2}, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = from_json(backend.to_str().encode(), {}, "test")
    assert tokenizer.decode(tokenizer.encode("hello world")) == "hello world"


def test_lone_surrogates_do_not_raise() -> None:
    tokenizer = from_json(byte_level().to_str().encode(), {}, "test")
    assert tokenizer.decode(tokenizer.encode("a\udce9b")) == "a\ufffdb"


def test_folder_without_a_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert load(tmp_path) is None
    with pytest.raises(TokenizerError, match="found no tokenizer"):
        edgert.load_tokenizer(tmp_path)


def test_paths(tmp_path: Path) -> None:
    write(tmp_path, byte_level(), {"eos_token": "<|im_end|>"})
    (tmp_path / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    for path in (tmp_path, tmp_path / "tokenizer.json", tmp_path / "model.safetensors", str(tmp_path)):
        assert edgert.load_tokenizer(path).eos_id == 2
    (tmp_path / "other.json").write_text(byte_level().to_str(), encoding="utf-8")
    assert edgert.load_tokenizer(tmp_path / "other.json").eos_id is None
    with pytest.raises(ModelNotFoundError):
        edgert.load_tokenizer(tmp_path / "nowhere")


@pytest.mark.parametrize("content", [b"", b"{}", b"{", b"\xff\xfe{}", b"[]", b'{"model": {"type": "New"}}', b"null"])
def test_broken_tokenizer_json(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: found no tokenizer"):
        edgert.load_tokenizer(tmp_path)


def test_broken_configuration(tmp_path: Path) -> None:
    write(tmp_path, byte_level())
    (tmp_path / "tokenizer_config.json").write_text("[")
    with pytest.raises(FileFormatError, match=r"tokenizer_config\.json"):
        edgert.load_tokenizer(tmp_path)


def test_a_pattern_that_does_not_come_to_an_end_is_an_error() -> None:
    backend = byte_level()
    backend.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex("(a+)+$"), "isolated")
    tokenizer = from_json(backend.to_str().encode(), {}, "x")
    assert tokenizer.decode(tokenizer.encode("ab")) == "ab"
    with pytest.raises(TokenizerError, match=r"found an error in a text of 31 characters .*retry-limit"):
        tokenizer.encode("a" * 30 + "b")


def test_gguf_to_folder_and_back(tmp_path: Path) -> None:
    original = from_gguf(sentencepiece_metadata())
    assert original is not None
    for name, text in tokenizer_files(original).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    copy = edgert.load_tokenizer(tmp_path)
    assert (copy.bos_id, copy.eos_id, copy.unk_id) == (1, 2, 0)
    assert copy.special_ids == original.special_ids
    rng = random.Random(1)
    for _ in range(100):
        text = random_text(rng)
        ids = original.encode(text)
        assert copy.encode(text) == ids
        assert copy.decode(ids) == original.decode(ids)


def test_an_added_token_stands_for_its_own_text() -> None:
    """Its characters are no bytes of byte-level BPE, whatever the decoder would make of them."""
    backend = byte_level()
    backend.add_tokens([AddedToken("é¡Ā", normalized=False)])
    tokenizer = from_json(backend.to_str().encode(), {}, "test")
    ids = tokenizer.encode("aé¡Āb")
    assert tokenizer.token_id("é¡Ā") in ids
    assert tokenizer.decode(ids) == "aé¡Āb"


class SlowBackend:
    """A backend that takes its time between being told whether to parse special tokens and doing it."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self.__dict__["backend"] = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.backend, name, value)

    def encode(self, text: str, add_special_tokens: bool) -> Any:
        time.sleep(0.001)
        return self.backend.encode(text, add_special_tokens=add_special_tokens)


def test_threads_share_a_tokenizer() -> None:
    tokenizer = Tokenizer(cast(Any, SlowBackend(byte_level())), BYTE_LEVEL, SpecialTokens())
    text = "<|im_start|>user<|im_end|>"
    expected = {parse: tokenizer.encode(text, parse_special=parse) for parse in (False, True)}
    wrong: list[object] = []

    def work(parse: bool) -> None:
        for _ in range(50):
            if tokenizer.encode(text, parse_special=parse) != expected[parse]:
                wrong.append(parse)

    threads = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("name", ["gpt2", "litertlm", "phi3v", "whisper"])
def test_published_tokenizers_round_trip(shared: Path, name: str) -> None:
    tokenizer = edgert.load_tokenizer(shared / "tokenizers" / "hf" / f"{name}.tokenizer.json")
    seed = int(os.environ.get("EDGERT_TEST_SEED") or random.SystemRandom().getrandbits(32))
    rng = random.Random(seed)
    # U+2581 is a space to SentencePiece, and litertlm lacks some control characters and planes 4 to 15.
    lost = {"phi3v": "\u2581", "litertlm": "\x04\x06\x13\x14\x16\x1d"}.get(name, "")
    for _ in range(1000):
        text = random_text(rng, 30, highest=0x40000 if name == "litertlm" else 0x110000)
        text = text.translate(dict.fromkeys(map(ord, lost)))
        ids = tokenizer.encode(text, add_special=False)
        assert tokenizer.decode(ids) == text, f"EDGERT_TEST_SEED={seed}: {text!r}"


def test_zoo(shared: Path) -> None:
    for folder in sorted((shared / "models").glob("zoo-*")):
        tokenizer: Tokenizer = edgert.load_tokenizer(folder)
        assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.vocab_size) == (0, 2, 4096)
        assert not tokenizer.adds_bos
        assert tokenizer.decode(tokenizer.encode("Tell me a story 12.")) == "Tell me a story 12."
