"""A text that a model runs on to see what it does, for `edgert moe profile` and `edgert neurons`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from edgert.cli.terminal import StatusLine
from edgert.errors import FileFormatError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgert.llm import LLM

# Texts are cut into pieces of so many tokens, each with an empty context.
TEXT_TOKENS = 512
MAX_TOKENS = 32768

Text: TypeAlias = Annotated[str | None, typer.Option("--text", metavar="FILE", help="The text to run it on.")]
MaxTokens: TypeAlias = Annotated[int, typer.Option("--max-tokens", metavar="N", help="Most tokens of the text.")]


def read_text(path: str | None, max_tokens: int) -> str:
    """The text of --text. Raises UsageError or FileFormatError where there is none, or nothing is to be read of it."""
    if max_tokens < 1:
        raise UsageError(f"--max-tokens: found {max_tokens}, expected at least 1")
    if path is None:
        raise UsageError("--text: found none, expected a file with text to run the model on")
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path}: found no UTF-8 at byte {error.start}, expected a text") from None


def pieces(llm: LLM, text: str, max_tokens: int) -> Iterator[NDArray[np.int32]]:
    """The text's tokens, piece by piece; while the caller runs the model on them, a status line says how far it is."""
    import numpy as np

    from edgert.engine.prompts import require_tokenizer

    tokens = np.asarray(require_tokenizer(llm.tokenizer).encode(text)[:max_tokens], np.int32)
    if len(tokens) == 0:
        raise UsageError("--text: found no tokens, expected some; give a file that is not empty")
    length = min(TEXT_TOKENS, llm.context)
    started_s, done = time.perf_counter(), 0

    def describe() -> str:
        rate = done / (time.perf_counter() - started_s)
        left = f", {round((len(tokens) - done) / rate)} s left" if done else ""
        return f"profiling: {done} of {len(tokens)} tokens, {rate:.0f} tokens/s{left}"

    with StatusLine(describe):
        for begin in range(0, len(tokens), length):
            yield tokens[begin : begin + length]
            done = min(begin + length, len(tokens))
