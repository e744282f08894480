"""What commands show in a real terminal."""

import shlex
import sys

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
