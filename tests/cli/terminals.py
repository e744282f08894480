"""A real terminal: tmux, on a server of its own."""

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from .conftest import COMMAND

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
PROMPT = ">>>"


class Terminal:
    """A terminal that runs one command in `folder`, with a state folder of its own below it."""

    def __init__(self, server: str, folder: Path) -> None:
        self.server = server
        self.folder = folder

    def tmux(self, *arguments: str) -> str:
        command = ["tmux", "-L", self.server, "-f", "/dev/null", *arguments]
        return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=30).stdout

    def start(
        self, *arguments: str, columns: int = 80, environment: Mapping[str, str | None] | None = None, tail: str = ""
    ) -> None:
        """`edgert ARGUMENTS...` and its exit code. environment: variables to set, or to remove where None."""
        self.run(shlex.join([*COMMAND, *arguments]) + tail, columns=columns, environment=environment)

    def run(self, line: str, *, columns: int = 80, environment: Mapping[str, str | None] | None = None) -> None:
        variables: dict[str, str | None] = dict.fromkeys(("COLUMNS", "LINES", "NO_COLOR"))
        variables |= {"XDG_STATE_HOME": str(self.folder / "state"), "PYTHONPATH": os.environ.get("PYTHONPATH")}
        variables |= environment or {}
        removed = [word for name, value in variables.items() if value is None for word in ("-u", name)]
        setting = ["env", *removed, *(f"{name}={value}" for name, value in variables.items() if value is not None)]
        # Ctrl-C reaches the shell too, which would end with its command.
        script = f'trap : INT; {line}; echo "exit code $?"; sleep 600'
        command = shlex.join([*setting, "sh", "-c", script])
        # The whole of a long answer stays to be looked at.
        keep_all = ["set-option", "-g", "history-limit", "50000", ";"]
        self.tmux(*keep_all, "new-session", "-d", "-x", str(columns), "-y", "24", "-c", str(self.folder), command)

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        """A line, and Enter."""
        self.tmux("send-keys", "-l", text)
        self.keys("Enter")

    def paste(self, text: str) -> None:
        """As the terminal pastes: in brackets, where the program asked for them."""
        self.tmux("set-buffer", text)
        self.tmux("paste-buffer", "-p")

    def screen(self, *, with_colours: bool = False) -> str:
        """What was shown so far; lines that the terminal wrapped are joined."""
        return self.tmux("capture-pane", "-p", "-J", "-S", "-", *(["-e"] if with_colours else []))

    def wait_for(self, text: str, count: int = 1) -> str:
        """The screen, as soon as it shows the text so many times."""
        ends = time.monotonic() + 60
        while time.monotonic() < ends:
            screen = self.screen()
            if screen.count(text) >= count:
                return screen
            time.sleep(0.03)
        raise AssertionError(f"{text!r} did not come {count} times:\n{self.screen()}")

    def ask(self, text: str) -> str:
        """Types a line at the prompt; what is shown until the next prompt."""
        before = self.screen().count(PROMPT)
        self.type(text)
        return self.wait_for(PROMPT, before + 1).rsplit(PROMPT, 2)[-2]
