"""What commands show in a real terminal."""

import re
import shlex
import sys
import time

from .terminals import Terminal, needs_tmux

pytestmark = needs_tmux


def test_run_shows_progress_only_while_it_reads(terminal: Terminal) -> None:
    code = (
        "import time; from edgert.cli.terminal import BytesProgress\n"
        "with BytesProgress('loading x') as p:\n"
        "    p.update(10**9, 4 * 10**9); time.sleep(1.2)\n"
        "print('done')"
    )
    terminal.run(shlex.join([sys.executable, "-c", code]))
    terminal.wait_for("loading x: 25 %, 1.00 of 4.00 GB")
    assert "loading" not in terminal.wait_for("done")


def test_a_long_prompt_shows_its_rate_and_the_time_left(terminal: Terminal) -> None:
    (terminal.folder / "prompt").write_text("word " * 9000)
    arguments = ("run", "-t", "1", "-c", "20000")
    started_s = time.monotonic()
    terminal.start(*arguments, tail=" < prompt", environment={"EDGERT_ISA": "scalar"})
    terminal.wait_for("reading the prompt: ")
    assert time.monotonic() - started_s > 2
    shown = terminal.wait_for("s left")
    assert re.search(r"reading the prompt: \d+ of 9\d\d\d tokens, \d+ tokens/s, \d+ s left", shown)
    terminal.keys("C-c")
    assert "reading" not in terminal.wait_for("exit code 130")
