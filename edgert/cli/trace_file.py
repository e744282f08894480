"""`--trace FILE`: what a run did and when, in a file for chrome://tracing or Perfetto."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from edgert.errors import UsageError

if TYPE_CHECKING:
    from edgert.llm import LLM


@contextmanager
def trace_file(path: Path | None) -> Iterator[IO[str] | None]:
    """The open file; None without a path. Raises UsageError where it cannot be written, before anything is done."""
    if path is None:
        yield None
        return
    try:
        path.open("a").close()
    except OSError as error:
        raise UsageError(f"--trace: {path}: {error.strerror}; name a file that can be written") from error
    with path.open("w", encoding="utf-8") as file:
        yield file


@contextmanager
def traced(llm: LLM, file: IO[str] | None) -> Iterator[None]:
    """Writes what the model does in the `with` block, also where that ends early."""
    if file is None:
        yield
        return
    llm.start_trace()
    try:
        yield
    finally:
        llm.write_trace(file)
