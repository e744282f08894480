"""The real command in a real process."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .terminals import Terminal

# The installed script's two lines; it runs from the tree too.
COMMAND = [sys.executable, "-c", "from edgert.cli import main; main()"]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def command() -> list[str]:
    return COMMAND


@pytest.fixture
def edgert_run(tmp_path: Path) -> Run:
    """Runs `edgert ARGUMENTS...` in an empty folder; `piped` goes to stdin through a pipe."""

    def run(*arguments: str, piped: str | None = None, isa: str | None = None) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if k != "EDGERT_ISA"}
        if isa is not None:
            environment["EDGERT_ISA"] = isa
        return subprocess.run(
            [*COMMAND, *arguments],
            input=piped,
            stdin=subprocess.DEVNULL if piped is None else None,
            capture_output=True,
            text=True,
            encoding="utf-8",
            env=environment,
            cwd=tmp_path,
            timeout=120,
        )

    return run


@pytest.fixture
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> "Iterator[Terminal]":
    """A terminal whose folder is empty; nothing runs in it yet."""
    from .terminals import Terminal

    made = Terminal(f"edgert-test-{os.getpid()}-{abs(hash(request.node.nodeid))}", tmp_path)
    yield made
    made.tmux("kill-server")
