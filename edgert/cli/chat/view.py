"""An answer on its way to stdout: thinking dimmed or hidden."""

from __future__ import annotations

import os
import sys
import time

from edgert.cli.answers import show_text
from edgert.cli.chat.thinking import Part, ThinkingMarks, ThinkingSplitter
from edgert.cli.terminal import StatusLine, notice

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


def has_colours() -> bool:
    """Whether stdout is a terminal that should get colours (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


class AnswerView:
    """Shows one answer, piece by piece. `finish` must follow, after an error too."""

    def __init__(self, marks: ThinkingMarks, *, is_inside: bool, hides_thinking: bool) -> None:
        """is_inside: the answer begins with thinking whose opening mark stood in the prompt."""
        self._splitter = ThinkingSplitter(marks, is_inside=is_inside)
        self._hides_thinking = hides_thinking
        self._has_colours = has_colours()
        # A pipe that hides nothing gets the model's text as it is.
        self._is_plain = not sys.stdout.isatty() and not hides_thinking
        self._status: StatusLine | None = None
        # The mark that stood in the prompt, until the first piece shows that the answer has begun.
        self._opening = Part(f"{marks.opening}\n", True) if is_inside else None
        self._skips_blanks = False
        self._last = ""

    def show(self, text: str) -> None:
        """The next piece of the model's text."""
        if self._is_plain:
            self._write(text)
            return
        if self._opening is not None:
            self._show_part(self._opening)
            self._opening = None
        for part in self._splitter.feed(text):
            self._show_part(part)

    def finish(self) -> None:
        """Shows what was held back, and ends the line."""
        for part in self._splitter.finish():
            self._show_part(part)
        was_thinking = self._status is not None
        self._end_status()
        if was_thinking:
            notice("the answer ended in its thinking, which is hidden; /think on shows it")
        elif not self._last.endswith("\n"):
            show_text("\n")

    def _show_part(self, part: Part) -> None:
        if not part.is_thinking:
            self._show_answer(part.text)
        elif not self._hides_thinking:
            self._write(part.text, is_dim=self._has_colours)
        elif self._status is None:
            started_s = time.perf_counter()
            self._status = StatusLine(lambda: f"thinking: {time.perf_counter() - started_s:.0f} s")
            self._status.__enter__()
            self._skips_blanks = True

    def _show_answer(self, text: str) -> None:
        self._end_status()
        if self._skips_blanks:
            # Empty lines between hidden thinking and the answer would be shown without a reason.
            text = text.lstrip()
            self._skips_blanks = not text
        if text:
            self._write(text)

    def _write(self, text: str, *, is_dim: bool = False) -> None:
        if is_dim:
            sys.stdout.write(_DIM)
        try:
            show_text(text)
        finally:
            if is_dim:
                sys.stdout.write(_PLAIN)
                sys.stdout.flush()
        self._last = text

    def _end_status(self) -> None:
        if self._status is not None:
            self._status.end()
            self._status = None
