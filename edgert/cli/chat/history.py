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
        path = history_path()
        super().__init__(str(path))
        self._is_kept = False
        if path is None:
            notice("the history is not kept: HOME is not set")
            return
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o600))
            self._is_kept = path.is_file()
        except OSError as error:
            notice(f"the history is not kept: {path}: {error.strerror}")

    def load_history_strings(self) -> Iterable[str]:
        return super().load_history_strings() if self._is_kept else []

    def store_string(self, string: str) -> None:
        try:
            if self._is_kept:
                super().store_string(string)
        except OSError:
            # A full disk, say. A notice would stand in the middle of the line that is being sent.
            self._is_kept = False


def history_path() -> Path | None:
    """$XDG_STATE_HOME/edgert/history, or below ~/.local/state; None where neither is known."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):  # the XDG specification ignores others
        return Path(state) / "edgert" / "history"
    home = os.environ.get("HOME")
    return Path(home) / ".local" / "state" / "edgert" / "history" if home else None
