"""Completion in a real bash: Tab after commands, options and files."""

import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Run

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


class Bash:
    """An interactive bash on a terminal of its own."""

    def __init__(self, folder: Path) -> None:
        self._master, theirs = pty.openpty()
        environment = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "TERM": "dumb", "PS1": "$ "}
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)

    def type(self, keys: str, expected: str) -> str:
        """Types, and reads until the expected text has come."""
        os.write(self._master, keys.encode())
        shown, ends = "", time.monotonic() + 30
        while expected not in shown and time.monotonic() < ends:
            if select.select([self._master], [], [], 0.1)[0]:
                shown += os.read(self._master, 4096).decode(errors="replace")
        assert expected in shown, shown
        return shown

    def close(self) -> None:
        self._shell.kill()
        self._shell.wait()
        os.close(self._master)


@pytest.fixture
def bash(tmp_path: Path) -> Iterator[Bash]:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "edgert"
    program.write_text(f"#!{sys.executable}\nfrom edgert.cli import main\nmain()\n")
    program.chmod(0o755)
    (tmp_path / "a-model.gguf").write_bytes(b"")
    shell = Bash(tmp_path)
    yield shell
    shell.close()


def test_tab_completes_commands_options_and_files(bash: Bash) -> None:
    bash.type('eval "$(edgert --show-completion bash)"; echo re"ady"\n', "ready")
    bash.type("edgert doc\t", "edgert doctor")
    bash.type("\x15edgert sh\t", "edgert show")
    bash.type("\x15edgert show --tens\t", "--tensors")
    bash.type("\x15edgert run --max-t\t", "--max-tokens")
    bash.type("\x15edgert show a-m\t", "a-model.gguf")
    bash.type("\x15edgert run -m a-m\t", "a-model.gguf")


def test_install_writes_into_home_only(edgert_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    (tmp_path / "home").mkdir()
    done = edgert_run("--install-completion", "bash")
    assert done.returncode == 0, done.stderr
    script = tmp_path / "home" / ".bash_completions" / "edgert.sh"
    assert "_EDGERT_COMPLETE=complete_bash" in script.read_text()
    assert shlex.quote(str(script)) in (tmp_path / "home" / ".bashrc").read_text()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(
    edgert_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    done = edgert_run("--show-completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"complete_{shell}" in done.stdout
