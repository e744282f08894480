"""Opening a model and printing an answer, for the commands that talk."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from edgert.cli.printable import printable
from edgert.cli.terminal import BytesProgress, StatusLine, notice
from edgert.engine.opening import LoadOptions
from edgert.engine.output import Chunk
from edgert.engine.stream import ChunkStream
from edgert.errors import size
from edgert.llm import LLM, load_with
from edgert.offload.sizes import format_bytes

# A prompt that is read in less shows no progress.
PROMPT_PATIENCE_S = 2.0


def open_model(path: Path | None, options: LoadOptions) -> LLM:
    """The model, with its progress on stderr while its weights are read."""
    with BytesProgress(f"loading {path.name if path else 'the model'}") as progress:
        llm = load_with(path, options, progress.update)
    if llm.lossy:
        given = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in llm.lossy.items())
        notice(f"lossy: {given}")
    if options.ram is None and llm.memory is not None and not llm.memory.placement.fits:
        notice(
            f"{llm.path.name} takes {size(llm.file_bytes)}, {size(llm.free_bytes)} are free: reading it from disk as "
            f"it runs, within {format_bytes(llm.memory.budget.total_bytes)}; --ram sets how much"
        )
    return llm


class PromptProgress(StatusLine):
    """A status line for a prompt that is being read: tokens, rate, time left."""

    def __init__(self, stream: ChunkStream) -> None:
        super().__init__(self._text, patience_s=PROMPT_PATIENCE_S)
        self._stream = stream
        self._started_s = time.perf_counter()

    def _text(self) -> str:
        done, total = self._stream.num_computed_tokens, self._stream.num_prompt_tokens
        rate = (done - self._stream.num_reused_tokens) / (time.perf_counter() - self._started_s)
        text = f"reading the prompt: {done} of {total} tokens"
        if rate <= 0:
            return text
        return f"{text}, {rate:.0f} tokens/s, {max(0, round((total - done) / rate))} s left"


def collect(stream: ChunkStream, show: Callable[[str], None]) -> list[Chunk]:
    """All chunks; their text goes to `show` as it comes. A long prompt shows its progress first."""
    chunks: list[Chunk] = []
    with stream, PromptProgress(stream) as line:
        for chunk in stream:
            if not chunks:
                line.end()
            chunks.append(chunk)
            if chunk.text:
                show(chunk.text)
    return chunks


def show_text(text: str) -> None:
    """Text to stdout at once: as it is into a pipe or a file, without control characters to a terminal."""
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()
