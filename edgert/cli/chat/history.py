"""The lines that were typed in earlier chats, in the user's state folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import FileHistory

from edgert.cli.terminal import notice


class ChatHistory(FileHistory):
    """A file of lines, for its owner alone. Where it cannot be kept, one notice says so and lines last for the chat."""

    def __init__(self) -> None:
        self._path = history_path()
        self._is_kept = self._path is not None
        super().__init__(str(self._path or ""))
        if self._path is None:
            self._give_up("HOME is not set")

    def load_history_strings(self) -> Iterable[str]:
        if not self._is_kept:
            return []
        try:
            return list(super().load_history_strings())
        except OSError as error:
            self._give_up(f"{self._path}: {error.strerror}")
            return []

    def store_string(self, string: str) -> None:
        if not self._is_kept or self._path is None:
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600))
            super().store_string(string)
        except OSError as error:
            self._give_up(f"{self._path}: {error.strerror}")

    def _give_up(self, reason: str) -> None:
        self._is_kept = False
        notice(f"the history is not kept ({reason})")


def history_path() -> Path | None:
    """$XDG_STATE_HOME/edgert/history, or below ~/.local/state; None where neither is known."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):  # the XDG specification ignores others
        return Path(state) / "edgert" / "history"
    home = os.environ.get("HOME")
    return Path(home) / ".local" / "state" / "edgert" / "history" if home else None
