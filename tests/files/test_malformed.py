"""Every model of the corpus is refused by its own error: from Python, and as one line on the command line."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import edgert
from edgert.cli import run_command
from edgert.errors import EdgertError
from edgert.verify import verify

from .malformed import CORPUS

MESSAGES = [{"role": "user", "content": "then"}]
COMMAND = [sys.executable, "-c", "from edgert.cli import main; main()"]
# One of each kind goes through a process of its own.
SAMPLE = [next(name for name in CORPUS if name.startswith(kind)) for kind in sorted({n.split(":")[0] for n in CORPUS})]


def test_the_corpus_is_large_enough() -> None:
    assert len(CORPUS) >= 80


def message_of(path: Path) -> EdgertError:
    """The error of opening, loading and using a model."""
    with pytest.raises(EdgertError) as caught, edgert.load(path, threads=1) as llm:
        llm.chat_template.render(MESSAGES)
    return caught.value


@pytest.mark.parametrize("name", CORPUS)
def test_each_has_its_own_error(tmp_path: Path, name: str) -> None:
    case = CORPUS[name]
    path = case.build(tmp_path)
    error = message_of(path)
    assert type(error) is case.error
    text = str(error)
    assert case.message in text
    # What, found, expected, what to do: in one short line that begins with the file.
    assert text.startswith(str(tmp_path))
    assert re.search("found|hidden_act is", text) and "; " in text
    assert re.search("expected|needs|does not use|edgert runs|knows", text)
    assert len(text) < 1000 and text.isprintable()
    if name.startswith("gguf:") and "alignment" not in name:
        assert re.search(r"byte \d+|\d+ bytes", text)


@pytest.mark.parametrize("name", CORPUS)
def test_verify_finds_the_same(tmp_path: Path, name: str) -> None:
    case = CORPUS[name]
    report = verify(case.build(tmp_path))
    assert any(type(f.error) is case.error and case.message in f.message for f in report.findings)


def test_the_errors_differ() -> None:
    texts = [(case.error, case.message) for case in CORPUS.values()]
    assert len(set(texts)) > 0.75 * len(texts)


@pytest.mark.parametrize("name", CORPUS)
def test_the_command_line_says_it_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str) -> None:
    path = CORPUS[name].build(tmp_path)
    assert run_command(["run", str(path), "then", "-n", "1", "--threads", "1"]) == 1
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"error: {tmp_path}")


@pytest.mark.parametrize("name", SAMPLE)
def test_a_process_ends_with_exit_code_1(tmp_path: Path, name: str) -> None:
    path = CORPUS[name].build(tmp_path)
    run = subprocess.run([*COMMAND, "run", str(path), "then"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (1, "", 1)
    assert CORPUS[name].message in run.stderr
