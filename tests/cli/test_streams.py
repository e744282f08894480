"""The command in surroundings that it did not choose: closed and full streams, other encodings, no HOME, Ctrl-C."""

import fcntl
import os
import pty
import random
import shlex
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest
from convert.gguf_files import gguf_file

from .conftest import COMMAND, Run

NOTICE = "no model given: using the small one that comes with edgert\n"
SHELL_COMMAND = shlex.join(COMMAND)


def shell(line: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A line for bash, in which `edgert` is the command; PYTHONUNBUFFERED must not hide what a buffer does."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["bash", "-c", f'edgert() {{ {SHELL_COMMAND} "$@"; }}; {line}'],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=tmp_path,
        env=kept | environment,
        timeout=120,
    )


def one_error(done: subprocess.CompletedProcess[bytes], *words: str) -> None:
    """Exit code 1, and one line on stderr beside the notice."""
    errors = done.stderr.decode().removeprefix(NOTICE)
    assert done.returncode == 1, errors
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert all(word in errors for word in words), errors


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", ["", "--help", "run hi", "run hi --json", "show"])
def test_a_full_disk_for_stdout(tmp_path: Path, arguments: str, unbuffered: str) -> None:
    done = shell(f"edgert {arguments} >/dev/full", tmp_path, PYTHONUNBUFFERED=unbuffered)
    one_error(done, "stdout: found No space left on device")


def test_a_reader_that_leaves(tmp_path: Path) -> None:
    done = shell("edgert run --raw Once -n 900 --ignore-eos | head -c 5; exit ${PIPESTATUS[0]}", tmp_path)
    assert len(done.stdout) == 5
    one_error(done, "stdout: found its reader gone")


def test_closed_streams(tmp_path: Path) -> None:
    one_error(shell("edgert run hi >&-", tmp_path), "stdout: found it closed")
    answer = shell("edgert run hi --temp 0", tmp_path).stdout
    assert shell("edgert run hi --temp 0 <&-", tmp_path).stdout == answer != b""
    one_error(shell("edgert run <&-", tmp_path), "prompt: found none")
    # What belongs to stderr must not get into the answer.
    for closed in ("2>&-", "<&- 2>&-", "2>/dev/full"):
        done = shell(f"edgert run hi --temp 0 {closed}", tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, answer, b"")
        assert shell(f"edgert run nowhere.gguf hi {closed}", tmp_path).returncode == 1
    assert shell("edgert run hi <&- >&- 2>&-", tmp_path).returncode == 1
    assert shell("edgert chat <&-", tmp_path).returncode == 0


def test_without_home_and_in_an_empty_environment(tmp_path: Path) -> None:
    done = shell("unset HOME; edgert run hi", tmp_path)
    assert (done.returncode, done.stderr.decode()) == (0, NOTICE)
    path = os.environ.get("PYTHONPATH", "")
    done = shell(f"env -i PYTHONPATH={shlex.quote(path)} {SHELL_COMMAND} run hi", tmp_path)
    assert (done.returncode, done.stderr.decode()) == (0, NOTICE)


def test_nothing_is_written_into_home_or_the_folder(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "folder"
    for place in (home, folder):
        place.mkdir()
        place.chmod(0o555)
    done = shell("edgert run hi; edgert show; edgert", folder, HOME=str(home))
    assert done.returncode == 0
    assert [*home.iterdir(), *folder.iterdir()] == []


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
    ],
)
def test_other_encodings(tmp_path: Path, environment: dict[str, str]) -> None:
    # The stop text, which the template and the model let through, is not what is tested: the encodings are.
    done = shell("edgert run --raw '日本 é' -n 4 --json; edgert run nowhere/日本.gguf x", tmp_path, **environment)
    assert done.returncode == 1
    assert b'"tokens": [' in done.stdout
    assert b"Traceback" not in done.stderr
    assert done.stderr.count(b"\n") == 2
    assert shell(r"edgert run $'\xff\xfe' -n 3", tmp_path, **environment).returncode == 0
    assert shell("edgert show", tmp_path, **environment).returncode == 0


def test_errors_cannot_steer_the_terminal(tmp_path: Path) -> None:
    done = shell(r"edgert run $'nowhere\x1b[31m\a\r\n.gguf' hi", tmp_path)
    one_error(done, r"nowhere\x1b[31m\x07")
    assert all(byte >= 32 for byte in done.stderr.removesuffix(b"\n"))


def test_an_unknown_architecture_and_a_long_prompt(edgert_run: Run, tmp_path: Path) -> None:
    gguf_file(tmp_path / "m.gguf", {"general.architecture": "mamba"}, {})
    for arguments in (["run", "m.gguf", "hi"], ["chat", "m.gguf"], ["bench", "m.gguf"], ["convert", "m.gguf", "out"]):
        done = edgert_run(*arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("error: m.gguf: general.architecture: found 'mamba', expected one of ")
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
    done = edgert_run("run", piped="word " * 5000)
    assert done.stderr.removeprefix(NOTICE).startswith("error: prompt: found 5")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 2)


@pytest.mark.parametrize(
    "arguments", [["run", "--raw", "Once", "-n", "-1", "--ignore-eos", "-c", "200000"], ["doctor"]]
)
def test_ctrl_c_at_any_moment(tmp_path: Path, arguments: list[str]) -> None:
    seed = int(os.environ.get("EDGERT_TEST_SEED", "1"))
    print(f"EDGERT_TEST_SEED={seed}")
    moments = random.Random(seed)
    for _ in range(5):
        running = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
        )
        # Before that the interpreter itself starts, and takes the signal.
        time.sleep(moments.uniform(0.2, 0.8))
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
        assert (running.returncode, errors.decode().removeprefix(NOTICE)) == (130, "interrupted\n")


def on_a_terminal(arguments: list[str], *, columns: int, interrupt_after_s: float | None = None) -> tuple[int, str]:
    """Exit code, and everything that came to a terminal of so many columns, to which both streams lead."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    running = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    if interrupt_after_s is not None:
        threading.Timer(interrupt_after_s, running.send_signal, [signal.SIGINT]).start()
    pieces = []
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError:  # how Linux says that the other end is closed
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(ours)
    return running.wait(60), b"".join(pieces).decode()


@pytest.mark.parametrize("columns", [20, 80])
def test_a_status_line_keeps_to_its_line(columns: int) -> None:
    code = (
        "import time; from edgert.cli.terminal import BytesProgress\n"
        "with BytesProgress('loading a-model\\x1b[2J-with-a-long-name.gguf') as p:\n"
        "    p.update(10**9, 4 * 10**9); time.sleep(0.8)\n"
    )
    returncode, text = on_a_terminal([sys.executable, "-c", code], columns=columns)
    lines = [line for line in text.replace("\x1b[K", "").split("\r") if line]
    assert returncode == 0
    assert len(lines) >= 2
    assert all(line.startswith("loading a-model\\x1") for line in lines)
    assert max(map(len, lines)) == (19 if columns == 20 else 79)
    assert "\x1b" not in "".join(lines)
    assert text.endswith("\r\x1b[K")


def test_ctrl_c_on_a_terminal_ends_the_line_first() -> None:
    arguments = [*COMMAND, "run", "--raw", "Once", "-n", "-1", "--ignore-eos", "-c", "99999"]
    returncode, text = on_a_terminal(arguments, columns=20, interrupt_after_s=2)
    assert returncode == 130
    assert text.endswith("\r\ninterrupted\r\n")
    assert "Traceback" not in text
