"""The tokenizer of a Hugging Face folder as GGUF metadata, or a vocabulary without meaning."""

import json
import sys
from pathlib import Path
from typing import Any

import gguf


def add_tokenizer(writer: gguf.GGUFWriter, config: dict[str, Any], folder: Path | None) -> None:
    """A byte-level BPE tokenizer.json with the GPT-2 pre-tokenizer; other kinds are refused.

    Ids beyond its tokens, up to the model's vocabulary, are unused ones. Without a tokenizer.json: a vocabulary
    without meaning, for tests of logits and of speed.
    """
    if folder is None or not (folder / "tokenizer.json").exists():
        words = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
        words += [f"<{index}>" for index in range(len(words), config["vocab_size"])]
        words = words[: config["vocab_size"]]
        writer.add_tokenizer_model("llama")
        writer.add_token_list(words)
        writer.add_token_scores([0.0] * len(words))
        kinds = [gguf.TokenType.UNKNOWN] + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.BYTE] * 256
        kinds += [gguf.TokenType.NORMAL] * len(words)
        writer.add_token_types([int(kind) for kind in kinds[: len(words)]])
        for key, add in (("bos_token_id", writer.add_bos_token_id), ("eos_token_id", writer.add_eos_token_id)):
            found = config.get(key)
            if found is not None:
                add(found[0] if isinstance(found, list) else found)
        return
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    if tokenizer["model"]["type"] != "BPE" or (tokenizer["pre_tokenizer"] or {}).get("type") != "ByteLevel":
        sys.exit(f"{folder / 'tokenizer.json'}: found {tokenizer['model']['type']}, expected byte-level BPE of GPT-2")
    tokens = [f"[PAD{i}]" for i in range(config["vocab_size"])]
    types = [int(gguf.TokenType.UNUSED)] * len(tokens)
    for text, index in tokenizer["model"]["vocab"].items():
        tokens[index], types[index] = text, int(gguf.TokenType.NORMAL)
    for added in tokenizer["added_tokens"]:
        kind = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
        tokens[added["id"]], types[added["id"]] = added["content"], int(kind)
    merges = tokenizer["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_add_bos_token(bool(settings.get("add_bos_token", False)))
    ids = {token: index for index, token in enumerate(tokens)}
    for key, add in (
        ("bos", writer.add_bos_token_id),
        ("eos", writer.add_eos_token_id),
        ("pad", writer.add_pad_token_id),
    ):
        token = settings.get(f"{key}_token")
        if token is not None:
            add(ids[token if isinstance(token, str) else token["content"]])
    if settings.get("chat_template"):
        writer.add_chat_template(settings["chat_template"])
