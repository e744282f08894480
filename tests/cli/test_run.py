"""`edgert run`: what is printed where, and the exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import edgert
from edgert.cli.run import join_prompt, looks_like_model, split_arguments
from edgert.errors import UsageError
from edgert.llm import DEFAULT_MODEL

from .conftest import Run

NOTICE = "no model given: using the small one that comes with edgert\n"


def test_the_bundled_model_answers(edgert_run: Run) -> None:
    done = edgert_run("run", "The quick brown", "-n", "24")
    assert done.returncode == 0
    assert len(done.stdout.rstrip("\n")) > 20
    assert done.stdout.endswith("\n")
    assert done.stderr == NOTICE


def test_json_is_one_object(edgert_run: Run) -> None:
    done = edgert_run(
        "run", "-m", str(DEFAULT_MODEL), "-p", "Hello", "--json", "-s", "7", "--temp", "0.8", "--top-k", "20"
    )
    answer = json.loads(done.stdout)
    assert done.stderr == ""
    assert {"text", "tokens", "finish_reason", "timings"} <= answer.keys()
    assert answer["finish_reason"] == "stop"
    assert answer["timings"]["seed"] == 7
    assert answer["timings"]["generated_tokens"] == len(answer["tokens"])
    again = json.loads(
        edgert_run("run", str(DEFAULT_MODEL), "Hello", "--json", "-s", "7", "--temp", "0.8", "--top-k", "20").stdout
    )
    assert (again["text"], again["tokens"]) == (answer["text"], answer["tokens"])


def test_the_command_and_the_api_agree(edgert_run: Run) -> None:
    done = edgert_run(
        "run", "--raw", "Once upon", "-n", "9", "--temp", "0", "--ignore-eos", "--json", "-t", "1", "-c", "64"
    )
    with edgert.load() as llm:
        expected = llm.generate("Once upon", max_tokens=9, temperature=0, ignore_eos=True)
    answer = json.loads(done.stdout)
    assert tuple(answer["tokens"]) == expected.tokens
    assert answer["text"] == expected.text


def test_stop_and_stats(edgert_run: Run) -> None:
    done = edgert_run(
        "run", "--raw", "Once upon a time", "--temp", "0", "-n", "60", "--stop", ".", "--stop", "!", "--stats"
    )
    assert done.returncode == 0
    assert "." not in done.stdout
    assert "tokens/s" in done.stderr
    assert "seed" in done.stderr


def test_a_pipe_is_the_prompt(edgert_run: Run) -> None:
    assert edgert_run("run", piped="Hello\n").stdout == edgert_run("run", "Hello").stdout
    assert edgert_run("run", str(DEFAULT_MODEL), piped="Hello\n").stdout == edgert_run("run", "Hello").stdout
    joined = edgert_run("run", "Say", "--json", piped="Hello\n")
    assert json.loads(joined.stdout)["tokens"] == json.loads(edgert_run("run", "Say\nHello", "--json").stdout)["tokens"]


def test_a_file_as_stdin(edgert_run: Run, command: list[str], tmp_path: Path) -> None:
    (tmp_path / "prompt").write_text("Hello\n")
    with open(tmp_path / "prompt") as file:
        done = subprocess.run([*command, "run"], stdin=file, capture_output=True, text=True, timeout=60)
    assert done.stdout == edgert_run("run", "Hello").stdout


def test_a_system_message_reaches_the_model(edgert_run: Run) -> None:
    plain = json.loads(edgert_run("run", "Hello", "--json").stdout)
    told = json.loads(edgert_run("run", "Hello", "--json", "--system", "Be brief.").stdout)
    assert told["timings"]["prompt_tokens"] > plain["timings"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.gguf", "hi"], "nowhere.gguf"),
        (["nowhere/model"], "if it is the prompt, give it with -p"),
        (["hi", "-n", "0"], "max_tokens: found 0"),
        (["hi", "--temp", "-1"], "temperature: found -1"),
        (["hi", "-t", "0"], "threads: found 0"),
        (["hi", "-c", "0"], "context: found 0"),
        (["hi", "-c", "4"], "prompt: found"),
        ([], "prompt: found none"),
        (["a", "b", "-m", "c"], "arguments: found 'b'"),
        (["hi", "--raw", "--system", "x"], "--system"),
    ],
)
def test_an_error_is_one_line_and_exit_code_1(edgert_run: Run, arguments: list[str], message: str) -> None:
    done = edgert_run("run", *arguments)
    lines = [line for line in done.stderr.splitlines() if line + "\n" != NOTICE]
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert message in lines[0]


def test_a_file_that_is_no_model_is_one_line(edgert_run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(20))
    done = edgert_run("run", "bad.gguf", "hi")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_an_unknown_instruction_set_is_refused(edgert_run: Run) -> None:
    done = edgert_run("run", "hi", isa="nonsense")
    assert done.returncode == 1
    assert "error: EDGERT_ISA: found 'nonsense'" in done.stderr


@pytest.mark.parametrize("arguments", [["--nope"], ["hi", "-n", "many"]])
def test_a_wrong_option_is_exit_code_2(edgert_run: Run, arguments: list[str]) -> None:
    done = edgert_run("run", *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_closed_pipe_is_one_line(command: list[str]) -> None:
    pipe = subprocess.Popen(
        [*command, "run", "--raw", "Once", "-n", "900", "--ignore-eos"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    assert pipe.stdout is not None
    assert pipe.stderr is not None
    pipe.stdout.read(10)
    pipe.stdout.close()
    assert pipe.wait(60) == 1
    lines = pipe.stderr.read().decode().removeprefix(NOTICE).splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: stdout: found its reader gone")
    pipe.stderr.close()


def test_ctrl_c_is_exit_code_130(command: list[str]) -> None:
    running = subprocess.Popen(
        [*command, "run", "--raw", "Once", "-n", "-1", "--ignore-eos", "-c", "200000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    assert running.stdout is not None
    assert running.stdout.read(5)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert errors.decode() == NOTICE + "interrupted\n"


def test_starting_is_quick(edgert_run: Run) -> None:
    times = []
    for _ in range(3):
        started = time.perf_counter()
        edgert_run("run", "Hello", "-n", "1")
        times.append(time.perf_counter() - started)
    # 0.35 s on a quiet machine; the bound leaves room for a busy one.
    assert min(times) < 3


def test_the_first_token_needs_few_packages(command: list[str]) -> None:
    """What is imported before it, beside the standard library: half of the start-up time lies there."""
    code = (
        "import sys; from edgert.cli import answers, run_command\n"
        "answers.show_text = lambda text: sys.exit(print(*sys.modules))\n"
        "run_command(['run', 'hi', '-n', '3', '--temp', '0'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    loaded = set(done.stdout.split())
    bare = subprocess.run([sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True)
    packages = {name.partition(".")[0] for name in loaded - set(bare.stdout.split())} - sys.stdlib_module_names
    packages = {name for name in packages if not name.startswith("_")}
    # click, colorama, typing_extensions, annotated_doc: of typer, depending on its version.
    typers = {"typer", "click", "shellingham", "colorama", "typing_extensions", "annotated_doc"}
    assert {"edgert", "numpy", "jinja2", "typer"} <= packages
    # numpy puts org.python.core of pickle there.
    assert packages <= {"edgert", "numpy", "tokenizers", "jinja2", "markupsafe", "org"} | typers
    assert not {"edgert.convert", "edgert.cli.chat", "edgert.cli.bench", "edgert.models.qwen3", "secrets"} & loaded


def test_help_needs_neither_numpy_nor_the_core(command: list[str]) -> None:
    code = (
        "import sys; from edgert.cli import run_command; run_command(['--help'])\n"
        "print([m for m in ('numpy', 'rich', 'jinja2', 'tokenizers', 'edgert._core') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((None, None, None, None), (None, None)),
        (("model", "text", None, None), ("model", "text")),
        (("text", None, None, None), (None, "text")),
        (("x.gguf", None, None, None), ("x.gguf", None)),
        (("a/b", None, None, None), ("a/b", None)),
        (("name", None, None, "text"), ("name", "text")),
        (("text", None, "model", None), ("model", "text")),
        ((None, None, "model", "text"), ("model", "text")),
        (("x.gguf", None, "model", None), ("model", "x.gguf")),
    ],
)
def test_which_argument_is_what(arguments: tuple[str | None, ...], expected: tuple[str | None, str | None]) -> None:
    assert split_arguments(*arguments) == expected


@pytest.mark.parametrize(
    "arguments", [("a", "b", "m", None), ("a", "b", None, "p"), ("a", None, "m", "p"), ("a", "b", "m", "p")]
)
def test_too_many_arguments(arguments: tuple[str | None, ...]) -> None:
    with pytest.raises(UsageError):
        split_arguments(*arguments)


def test_what_looks_like_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not looks_like_model("zoo")
    (tmp_path / "zoo").mkdir()
    assert looks_like_model("zoo")
    assert looks_like_model("model.safetensors")
    assert not looks_like_model("x" * 5000)
    assert not looks_like_model("null \0 inside")


def test_prompt_and_pipe_are_joined() -> None:
    assert join_prompt("a", "b") == "a\nb"
    assert join_prompt(None, "b") == join_prompt("-", "b") == "b"
    with pytest.raises(UsageError):
        join_prompt(None, "")
