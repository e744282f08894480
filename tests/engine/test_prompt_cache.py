"""Kept conversations: which prefix is reused, what is dropped, what is released."""

import numpy as np
from numpy.typing import NDArray

from edgert.engine.prompt_cache import PromptCache, common_prefix_length


class Store:
    """Sequences by id, as lengths."""

    def __init__(self) -> None:
        self.lengths: dict[int, int] = {}
        self.next_id = 100

    def fork(self, sequence: int, /) -> int:
        self.next_id += 1
        self.lengths[self.next_id] = self.lengths[sequence]
        return self.next_id

    def rewind(self, sequence: int, length: int, /) -> None:
        assert length <= self.lengths[sequence]
        self.lengths[sequence] = length

    def release(self, sequence: int, /) -> None:
        del self.lengths[sequence]


def ids(*tokens: int) -> NDArray[np.int32]:
    return np.array(tokens, dtype=np.int32)


def make(capacity: int, *entries: NDArray[np.int32]) -> tuple[Store, PromptCache]:
    store = Store()
    cache = PromptCache(store, capacity)
    for i, tokens in enumerate(entries):
        store.lengths[i] = len(tokens)
        cache.insert(i, tokens)
    return store, cache


def test_common_prefix() -> None:
    assert common_prefix_length(ids(1, 2, 3), ids(1, 2, 4, 5)) == 2
    assert common_prefix_length(ids(1, 2), ids(1, 2, 3)) == 2
    assert common_prefix_length(ids(), ids(1)) == 0


def test_the_longest_prefix_is_forked_and_rewound() -> None:
    store, cache = make(4, ids(1, 2, 3, 4), ids(1, 2, 9))
    found = cache.fork_longest(ids(1, 2, 3, 7, 8))
    assert found is not None
    core_id, length = found
    assert (length, store.lengths[core_id]) == (3, 3)
    assert store.lengths[0] == 4, "the kept conversation stays"


def test_the_last_token_is_always_computed_again() -> None:
    _, cache = make(4, ids(1, 2, 3, 4))
    found = cache.fork_longest(ids(1, 2, 3))
    assert found is not None
    assert found[1] == 2


def test_nothing_in_common_forks_nothing() -> None:
    store, cache = make(4, ids(1, 2))
    assert cache.fork_longest(ids(3, 4)) is None
    assert cache.fork_longest(ids(1)) is None
    assert set(store.lengths) == {0}


def test_a_continued_conversation_takes_the_place_of_its_beginning() -> None:
    store, cache = make(4, ids(1, 2), ids(1, 2, 3, 4))
    assert len(cache) == 1
    assert set(store.lengths) == {1}


def test_the_least_recently_used_goes_first() -> None:
    store, cache = make(2, ids(1, 1), ids(2, 2))
    cache.fork_longest(ids(1, 1, 5))
    store.lengths[7] = 2
    cache.insert(7, ids(3, 3))
    assert {0, 7} <= set(store.lengths)
    assert 1 not in store.lengths


def test_a_cache_of_no_conversations_keeps_none() -> None:
    store, cache = make(0, ids(1, 2))
    assert len(cache) == 0
    assert store.lengths == {}


def test_clear_releases_everything() -> None:
    store, cache = make(4, ids(1, 1), ids(2, 2))
    cache.clear()
    assert store.lengths == {}
    assert not cache.evict_oldest()
