"""Stop strings: which text may go out, and which must wait because a stop string may be growing in it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class StopMatcher:
    """Cuts a stream of text at the first of the stop strings; the stop string itself is never given out."""

    stops: tuple[str, ...]
    _held: str = field(default="", init=False)

    def feed(self, text: str) -> tuple[str, bool]:
        """Adds text; returns what may go out now, and whether a stop string was found (then nothing may follow)."""
        if not self.stops:
            return text, False
        self._held += text
        found = min((i for i in (self._held.find(stop) for stop in self.stops) if i >= 0), default=-1)
        if found >= 0:
            text, self._held = self._held[:found], ""
            return text, True
        keep = self._growing_chars()
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        return text, False

    def flush(self) -> str:
        """The text that was held back, when nothing more will come."""
        text, self._held = self._held, ""
        return text

    def _growing_chars(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        longest = min(len(self._held), max(len(stop) for stop in self.stops) - 1)
        for length in range(longest, 0, -1):
            end = self._held[-length:]
            if any(stop.startswith(end) for stop in self.stops):
                return length
        return 0
