"""Small tokenizers for the tests, made from nothing, and a writer of GGUF files that hold only metadata."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers

CORPUS = (
    "Once upon a time there was a little girl named Lily. She loved to play outside in the sunshine, "
    "12345 times a day!\n\nThe quick brown fox doesn't jump over 42 lazy dogs; it's tired... Grüße aus Köln, 東京 😀\n"
)
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
SPACE = "\u2581"


def byte_level(*, special: Sequence[str] = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")) -> tokenizers.Tokenizer:
    """A byte-level BPE with all 256 bytes, trained on CORPUS, with `special` as ids 0, 1, ..."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([CORPUS], trainer)
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("   ", normalized=False)])
    return tokenizer


def with_bos(tokenizer: tokenizers.Tokenizer, bos: str) -> tokenizers.Tokenizer:
    """`tokenizer` with a post-processor that puts `bos` in front."""
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))]
    )
    return tokenizer


def byte_level_metadata(pre: str = "gpt-2", **changes: Any) -> dict[str, Any]:
    """`byte_level()` as the key-values of a GGUF file."""
    model = json.loads(byte_level().to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    tokens += ["<think>", "   ", "[PAD]"]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    kinds = {
        "<|endoftext|>": CONTROL,
        "<|im_start|>": CONTROL,
        "<|im_end|>": CONTROL,
        "<think>": USER_DEFINED,
        "   ": USER_DEFINED,
    }
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [kinds.get(token, UNUSED if token == "[PAD]" else NORMAL) for token in tokens],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
    }
    return changed(metadata, changes)


def sentencepiece_metadata(seed: int = 0, **changes: Any) -> dict[str, Any]:
    """A vocabulary of SentencePiece's kind over a few letters, with random pieces and distinct random scores."""
    rng = random.Random(seed)
    alphabet = [SPACE, *"abcde", "é"]
    pieces = {"".join(rng.choices(alphabet, k=rng.randrange(2, 6))) for _ in range(120)}
    # As in trained vocabularies, every piece can be reached by merging: its prefixes are pieces too.
    pieces |= {piece[:end] for piece in pieces for end in range(2, len(piece))}
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *alphabet, *sorted(pieces)]
    num_first = 259 + len(alphabet)
    scores = [0.0] * 259 + [-1e6 - i for i in range(len(alphabet))] + [-float(i) for i in range(len(pieces))]
    shuffled = scores[num_first:]
    rng.shuffle(shuffled)
    scores[num_first:] = shuffled
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * (len(tokens) - 259)]
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    return changed(metadata, changes)


def changed(metadata: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`metadata` with `tokenizer.ggml.<key>` replaced; None takes the key out."""
    for key, value in changes.items():
        metadata[f"tokenizer.ggml.{key}"] = value
    return {key: value for key, value in metadata.items() if value is not None}


def random_text(rng: random.Random, length: int = 40, *, highest: int = 0x110000) -> str:
    """Characters of every kind, and things that look like tokens."""
    pieces = [
        lambda: chr(rng.randrange(32, 127)),
        lambda: rng.choice(" \n\t\r\u00a0\u3000"),
        lambda: chr(rng.choice([rng.randrange(1, 0xD800), rng.randrange(0xE000, highest)])),
        lambda: rng.choice(
            ["<|im_start|>", "<|im_end|>", "<s>", "</s>", "<unk>", "<0x0A>", "<think>", "   ", "'ll", "😀"]
        ),
        lambda: rng.choice(["the", " time", "Once", "123", "Köln", "東京"]),
    ]
    return "".join(rng.choice(pieces)() for _ in range(rng.randrange(length)))


def write_gguf(path: Path, metadata: dict[str, Any]) -> Path:
    """A GGUF version 3 file with `metadata` and no tensors."""
    entries = b"".join(_string(key) + _value(value) for key, value in metadata.items())
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(metadata)) + entries)
    return path


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, list):
        kind, items = _kind(value[0]), b"".join(_scalar(item) for item in value)
        return struct.pack("<IIQ", 9, kind, len(value)) + items
    return struct.pack("<I", _kind(value)) + _scalar(value)


def _kind(value: Any) -> int:
    return {bool: 7, int: 5, float: 6, str: 8}[type(value)]


def _scalar(value: Any) -> bytes:
    if isinstance(value, str):
        return _string(value)
    return struct.pack({bool: "<?", int: "<i", float: "<f"}[type(value)], value)
