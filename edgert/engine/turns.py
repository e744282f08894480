"""Who may touch the core: one thread at a time, without a lock that is held while it works."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Turns:
    """One thread at a time has the turn. Waiting is for the turn or for a result, whichever comes first.

    A finaliser may run anywhere, even inside a turn of its own thread or inside the few lines that hold the lock; it
    asks `is_mine` and then must not wait.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._holder: int | None = None
        self._inside: int | None = None
        self._num_first = 0  # who wait in `alone`

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread has the turn, or is about to take or return it."""
        return threading.get_ident() in (self._holder, self._inside)

    def take_unless(self, is_ready: Callable[[], bool], *, is_first: bool = False) -> bool:
        """Waits for the turn and takes it; returns False without it as soon as is_ready().

        is_first: before those who are not, or a thread that takes turn after turn would keep the others waiting.
        """
        me = threading.get_ident()
        with self._condition:
            try:
                self._inside = me
                while not is_ready():
                    # A turn of this thread that was not given back was cut off by an interrupt.
                    is_free = self._holder is None and (is_first or not self._num_first)
                    if is_free or self._holder == me:
                        self._holder = me
                        return True
                    self._inside = None
                    self._condition.wait()
                    self._inside = me
                return False
            finally:
                self._inside = None

    def give_back(self) -> None:
        """Ends the turn; everyone who waits looks again."""
        with self._condition:
            self._holder = None
            self._condition.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A turn for the body of the `with` statement."""
        with self._condition:
            self._num_first += 1
        try:
            self.take_unless(lambda: False, is_first=True)
        finally:
            with self._condition:
                self._num_first -= 1
                self._condition.notify_all()
        try:
            yield
        finally:
            self.give_back()
