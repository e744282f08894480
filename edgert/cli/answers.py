"""Opening a model and printing an answer, for the commands that talk."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from edgert.cli.terminal import BytesProgress, StatusLine
from edgert.engine.output import Chunk
from edgert.engine.stream import ChunkStream
from edgert.llm import LLM, load


def open_model(path: Path | None, *, threads: int | None, context: int | None) -> LLM:
    """The model, with its progress on stderr while its weights are read."""
    with BytesProgress(f"loading {path.name if path else 'the model'}") as progress:
        return load(path, threads=threads, context=context, progress=progress.update)


def collect(stream: ChunkStream, show: Callable[[str], None]) -> list[Chunk]:
    """All chunks; their text goes to `show` as it comes. A long prompt shows its progress first."""
    chunks: list[Chunk] = []
    with StatusLine(
        lambda: f"reading the prompt: {stream.num_computed_tokens} of {stream.num_prompt_tokens} tokens"
    ) as line:
        for chunk in stream:
            if not chunks:
                line.end()
            chunks.append(chunk)
            if chunk.text:
                show(chunk.text)
    return chunks


def show_text(text: str) -> None:
    """Text to stdout at once."""
    sys.stdout.write(text)
    sys.stdout.flush()
