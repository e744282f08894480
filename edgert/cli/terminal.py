"""What goes to stderr beside the answer: notices, and a line that shows that something long goes on."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from edgert.cli.printable import printable
from edgert.cli.streams import STDERR, drop
from edgert.errors import one_line, size

if TYPE_CHECKING:
    from edgert.engine.output import Timings

# What is quicker than this shows no progress.
PATIENCE_S = 0.5
REFRESH_S = 0.1
_CLEAR_LINE = "\r\x1b[K"
_Line = TypeVar("_Line", bound="StatusLine")


def notice(text: str) -> None:
    """One line on stderr. Where stderr takes nothing, nothing is said."""
    try:
        print(printable(text), file=sys.stderr, flush=True)
    except OSError:
        drop(STDERR)


class StatusLine:
    """For the length of a `with` block: a line on stderr, made anew ten times a second, gone at the end.

    Nothing is shown in the first half second, or where stderr is no terminal.
    """

    def __init__(self, describe: Callable[[], str], *, patience_s: float = PATIENCE_S) -> None:
        """describe(): the line's text; called from a thread of its own, after patience_s for the first time."""
        self._describe = describe
        self._patience_s = patience_s
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self: _Line) -> _Line:
        if sys.stderr.isatty():
            self._thread = threading.Thread(target=self._show, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Removes the line; may be called twice."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _show(self) -> None:
        if self._ended.wait(self._patience_s):
            return
        while True:
            sys.stderr.write(_CLEAR_LINE + self._line())
            sys.stderr.flush()
            if self._ended.wait(REFRESH_S):
                break
        sys.stderr.write(_CLEAR_LINE)
        sys.stderr.flush()

    def _line(self) -> str:
        """The text, cut where the terminal's line ends: one that wraps could not be made anew."""
        return one_line(self._describe())[: os.get_terminal_size(sys.stderr.fileno()).columns - 1]


class BytesProgress(StatusLine):
    """A status line for work that is counted in bytes: share, bytes, rate, time left."""

    def __init__(self, title: str) -> None:
        super().__init__(self._text)
        self._title = title
        self._started_s = time.perf_counter()
        self._done_bytes = 0
        self._total_bytes = 0

    def update(self, done_bytes: int, total_bytes: int) -> None:
        self._done_bytes, self._total_bytes = done_bytes, total_bytes

    def _text(self) -> str:
        done, total = self._done_bytes, self._total_bytes
        elapsed_s = time.perf_counter() - self._started_s
        if not done or not total:
            return f"{self._title} ..."
        rate = done / elapsed_s
        left_s = max(0, round((total - done) / rate))
        left = f"{left_s} s" if left_s < 120 else f"{left_s // 60} min"
        amount = f"{done / 1e9:.2f} of {total / 1e9:.2f} GB" if total >= 10**9 else f"{done / 1e6:.1f} of {size(total)}"
        return f"{self._title}: {100 * done // total} %, {amount}, {size(round(rate))}/s, {left} left"


def show_timings(timings: Timings) -> None:
    """Counts and rates of an answer on stderr."""
    reused = f" ({timings.reused_tokens} reused)" if timings.reused_tokens else ""
    notice(
        f"load {timings.load_s:.2f} s | "
        f"prompt {timings.prompt_tokens} tokens{reused}, {timings.prompt_s:.2f} s, "
        f"{timings.prompt_tokens_per_s:.1f} tokens/s | "
        f"answer {timings.generated_tokens} tokens, {timings.decode_s:.2f} s, {timings.tokens_per_s:.1f} tokens/s | "
        f"seed {timings.seed}"
    )
