"""chat in a real terminal: line editing, Ctrl-C, Ctrl-D."""

import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from .conftest import COMMAND

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    """A terminal of 80 x 24 that runs one command."""

    def __init__(self, session: str) -> None:
        self.session = session

    def tmux(self, *arguments: str) -> str:
        return subprocess.run(
            ["tmux", "-L", self.session, *arguments], capture_output=True, text=True, timeout=30
        ).stdout

    def start(self, *arguments: str) -> None:
        line = shlex.join([*COMMAND, *arguments])
        self.tmux(
            "-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", f'{line}; echo "exit code $?"; sleep 60'
        )

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-S", "-")

    def wait_for(self, text: str, count: int = 1) -> str:
        ends = time.monotonic() + 60
        while time.monotonic() < ends:
            screen = self.screen()
            if screen.count(text) >= count:
                return screen
            time.sleep(0.05)
        raise AssertionError(f"{text!r} did not come {count} times:\n{self.screen()}")


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    made = Terminal(f"edgert-test-{abs(hash(request.node.nodeid))}")
    yield made
    made.tmux("kill-server")


def test_a_conversation_and_ctrl_d(terminal: Terminal) -> None:
    terminal.start("chat")
    terminal.wait_for(">>>")
    terminal.keys("Hello", "Enter")
    screen = terminal.wait_for(">>>", 2)
    assert "no model given" in screen
    assert "Hello! How can I" in screen or len(screen.split(">>> Hello")[1].strip()) > 5
    terminal.keys("C-d")
    terminal.wait_for("exit code 0")


def test_ctrl_c_stops_the_answer_and_not_the_program(terminal: Terminal) -> None:
    terminal.start("chat", "--ignore-eos", "-c", "200000", "--temp", "1")
    terminal.wait_for(">>>")
    terminal.keys("Tell me a story", "Enter")
    terminal.wait_for("story")
    time.sleep(1)
    terminal.keys("C-c")
    terminal.wait_for(">>>", 2)
    terminal.keys("Hello", "Enter")
    time.sleep(0.5)
    terminal.keys("C-c")
    terminal.wait_for(">>>", 3)
    terminal.keys("/exit", "Enter")
    assert "Traceback" not in terminal.wait_for("exit code 0")


def test_ctrl_c_clears_the_line_and_then_leaves(terminal: Terminal) -> None:
    terminal.start("chat")
    terminal.wait_for(">>>")
    terminal.keys("half a line")
    terminal.wait_for("half a line")
    terminal.keys("C-c")
    terminal.wait_for(">>>", 2)
    terminal.keys("C-c")
    terminal.wait_for("exit code 0")


def test_run_shows_progress_only_while_it_reads(terminal: Terminal) -> None:
    code = (
        "import time; from edgert.cli.terminal import BytesProgress\n"
        "with BytesProgress('loading x') as p:\n"
        "    p.update(10**9, 4 * 10**9); time.sleep(1.2)\n"
        "print('done')"
    )
    line = shlex.join([sys.executable, "-c", code])
    terminal.tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", f"{line}; sleep 60")
    terminal.wait_for("loading x: 25 %, 1.00 of 4.00 GB")
    assert "loading" not in terminal.wait_for("done")
