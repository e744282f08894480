"""Finished conversations whose keys and values are kept, so that the next turn computes only what is new."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class PrefixStore(Protocol):
    """What the cache needs of the core's runtime."""

    def fork(self, sequence: int, /) -> int: ...
    def rewind(self, sequence: int, length: int, /) -> None: ...
    def release(self, sequence: int, /) -> None: ...


@dataclass(frozen=True, slots=True)
class CachedPrefix:
    """`tokens` (int32, n) whose keys and values the core's sequence `core_id` holds."""

    core_id: int
    tokens: NDArray[np.int32]


class PromptCache:
    """The last `capacity` finished conversations, least recently used first to go. Used by the engine's driver only."""

    def __init__(self, store: PrefixStore, capacity: int) -> None:
        self._store = store
        self._capacity = capacity
        self._entries: OrderedDict[int, CachedPrefix] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def fork_longest(self, tokens: NDArray[np.int32]) -> tuple[int, int] | None:
        """A new core sequence with the longest kept prefix of `tokens`, and its length; None where none is kept.

        At least the last token is left to compute: its logits are wanted. The kept conversation stays (its pages are
        shared until one of the two writes), so two conversations can grow from one system prompt.
        """
        best: CachedPrefix | None = None
        best_length = 0
        for entry in self._entries.values():
            length = common_prefix_length(entry.tokens, tokens[:-1])
            if length > best_length:
                best, best_length = entry, length
        if best is None:
            return None
        self._entries.move_to_end(best.core_id)
        core_id = self._store.fork(best.core_id)
        self._store.rewind(core_id, best_length)
        return core_id, best_length

    def insert(self, core_id: int, tokens: NDArray[np.int32]) -> None:
        """Takes over the core sequence; drops the entries that it contains and what is over the capacity."""
        for entry in list(self._entries.values()):
            if common_prefix_length(entry.tokens, tokens) == len(entry.tokens):
                self._drop(entry.core_id)
        self._entries[core_id] = CachedPrefix(core_id, tokens.copy())
        while len(self._entries) > self._capacity:
            self.evict_oldest()

    def evict_oldest(self) -> bool:
        """Releases the conversation that was longest unused; False if there is none."""
        if not self._entries:
            return False
        self._drop(next(iter(self._entries)))
        return True

    def clear(self) -> None:
        while self.evict_oldest():
            pass

    def _drop(self, core_id: int) -> None:
        del self._entries[core_id]
        self._store.release(core_id)


def common_prefix_length(a: NDArray[np.int32], b: NDArray[np.int32]) -> int:
    """Number of leading tokens that two int32 arrays share."""
    shortest = min(len(a), len(b))
    differs = a[:shortest] != b[:shortest]
    return int(differs.argmax()) if differs.any() else shortest
