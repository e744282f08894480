"""The iterator that a caller of `stream` holds."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from edgert.engine.engine import Engine
from edgert.engine.output import Chunk
from edgert.engine.sequence import Generation


class ChunkStream(Iterator[Chunk]):
    """Chunks of one generation, one for each token; the last has a finish_reason.

    `close`, the end of a `with` block, an error, or the last reference going away end the request and free its pages.
    An interrupt (Ctrl-C) during `next` ends it too. One thread at a time may use a stream.
    """

    def __init__(self, engine: Engine, generation: Generation) -> None:
        self._engine = engine
        self._generation = generation
        self._is_over = False
        engine.submit(generation)

    def __next__(self) -> Chunk:
        if self._is_over:
            raise StopIteration
        try:
            chunk = self._engine.next_chunk(self._generation)
        except BaseException:
            self.close()
            raise
        if chunk.finish_reason is not None:
            self._is_over = True
        return chunk

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return self._generation.num_prompt_tokens

    @property
    def num_computed_tokens(self) -> int:
        """Tokens that are computed so far: the progress of a long prompt, for a thread that watches."""
        return self._generation.num_computed

    @property
    def num_reused_tokens(self) -> int:
        """Tokens of these whose keys and values were at hand."""
        return self._generation.num_reused

    def close(self) -> None:
        """Ends the generation; its pages are free on return."""
        self._is_over = True
        self._engine.cancel(self._generation)

    def __enter__(self) -> ChunkStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # An iterator whose request was refused has no generation to end.
        if hasattr(self, "_is_over") and not self._is_over:
            self.close()
