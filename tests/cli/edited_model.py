"""The bundled model with other texts for some tokens: it answers with the same ids, and so says what a test needs."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from edgert.llm import DEFAULT_MODEL

# What the bundled model answers to "hi" when it draws nothing.
ANSWER_TO_HI = "Hi! What can I do for you?"


def edit_model(folder: Path, texts: Mapping[str, str], *, template_end: str = "") -> Path:
    """A model folder. texts: tokens, and what they stand for instead; template_end: what opens the answer."""
    shutil.copytree(DEFAULT_MODEL, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    model = tokenizer["model"]
    model["vocab"] = {_spelling(texts[piece]) if piece in texts else piece: i for piece, i in model["vocab"].items()}
    model["merges"] = [pair for pair in model["merges"] if not {*pair, "".join(pair)} & texts.keys()]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    config["chat_template"] = config["chat_template"].replace("assistant\n", f"assistant\n{template_end}")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def _spelling(text: str) -> str:
    """A text as a byte-level vocabulary spells it: bytes up to space are 256 further on (GPT-2's table)."""
    return "".join(chr(256 + byte) if byte <= 0x20 else chr(byte) for byte in text.encode())
