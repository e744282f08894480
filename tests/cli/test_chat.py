"""chat through a pipe, saved conversations, and what tells thinking from an answer."""

import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from edgert.chat import ChatTemplate
from edgert.cli.chat.commands import COMMANDS
from edgert.cli.chat.reading import is_open_quote, unquoted
from edgert.cli.chat.saved import MAX_FILE_BYTES, load_conversation
from edgert.cli.chat.thinking import ThinkingMarks, ThinkingSplitter, begins_inside, find_marks
from edgert.cli.printable import printable
from edgert.errors import ConversationError
from edgert.llm import DEFAULT_MODEL

from .conftest import Run
from .edited_model import ANSWER_TO_HI, edit_model

SEED = int(os.environ.get("EDGERT_TEST_SEED", "1"))
SAVED: dict[str, Any] = {
    "format": "edgert conversation",
    "version": 1,
    "model": str(DEFAULT_MODEL),
    "system": None,
    "sampling": {"max_tokens": -1, "temperature": 0.0},
    "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ANSWER_TO_HI}],
}


def with_message(**fields: Any) -> dict[str, Any]:
    return SAVED | {"messages": [SAVED["messages"][0] | fields, SAVED["messages"][1]]}


def test_the_commands_work_through_a_pipe(edgert_run: Run, tmp_path: Path) -> None:
    typed = "hi\n/tokens\n/set seed 3\n/save a.json\n/clear\n/tokens\n/load a.json\n/regen\n/quit\nnever\n"
    done = edgert_run("chat", str(DEFAULT_MODEL), piped=typed)
    assert (done.returncode, done.stdout) == (0, f"{ANSWER_TO_HI}\n{ANSWER_TO_HI}\n")
    said = "0 of 1024 tokens (0 %)\nloaded 2 messages, 20 of 1024 tokens\nthe same question gets the same answer"
    assert said in done.stderr
    saved = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert saved == SAVED | {"sampling": {"max_tokens": -1, "temperature": 0.0, "ignore_eos": False, "seed": 3}}


@pytest.mark.parametrize("line", ["/foo", "/set top_p 3", "/load nowhere.json", "/help me"])
def test_an_error_in_a_pipe_is_one_line_and_exit_code_1(edgert_run: Run, line: str) -> None:
    done = edgert_run("chat", str(DEFAULT_MODEL), piped=f"{line}\nhi\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_a_message_may_begin_with_a_slash_behind_a_space(edgert_run: Run) -> None:
    done = edgert_run("chat", str(DEFAULT_MODEL), piped=" /foo\n")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.strip()


def test_bytes_that_are_no_utf8_are_a_message(command: list[str]) -> None:
    strict = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    arguments = [*command, "chat", str(DEFAULT_MODEL)]
    piped = subprocess.run(arguments, input=b"hi \xff\xfe\n", capture_output=True, env=strict)
    assert (piped.returncode, piped.stderr) == (0, b"") and piped.stdout.strip()


def test_a_closed_stdin_ends_the_chat(command: list[str]) -> None:
    closed = subprocess.run(["sh", "-c", '"$@" <&-', "sh", *command, "chat", str(DEFAULT_MODEL)], capture_output=True)
    assert (closed.returncode, closed.stdout, closed.stderr) == (0, b"", b"")


def test_options_go_before_what_was_saved(edgert_run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(SAVED | {"system": "Be kind.", "model": "other"}), encoding="utf-8")
    arguments = ("chat", str(DEFAULT_MODEL), "--load", "a.json", "--temp", "0.5")
    done = edgert_run(*arguments, piped="/set temperature\n/set max_tokens\n/system\n/regen\n")
    lines = done.stderr.splitlines()
    assert "loaded 2 messages" in lines[0] and "written with other" in lines[1]
    assert lines[2:] == ["temperature 0.5", "max_tokens -1", "Be kind."] and done.stdout.strip()
    done = edgert_run("chat", str(DEFAULT_MODEL), "--load", "a.json", "--system", "Be brief.", piped="/system\n")
    assert done.stderr.splitlines()[-1] == "Be brief."
    done = edgert_run("chat", "no-model.gguf", "--load", "nowhere.json", piped="")
    assert done.returncode == 1 and done.stderr.startswith("error: nowhere.json: cannot be read")


def test_a_pipe_hides_thinking_only_where_it_is_asked_to(edgert_run: Run, tmp_path: Path) -> None:
    model = str(edit_model(tmp_path / "thinker", {"Hi": "<think>hm", "!": "</think>\n\n"}))
    assert edgert_run("chat", model, piped="hi\n").stdout == "<think>hm</think>\n\n What can I do for you?\n"
    assert edgert_run("chat", model, "--hide-thinking", piped="hi\n").stdout == "What can I do for you?\n"


def test_prompt_toolkit_is_imported_only_in_a_terminal(command: list[str]) -> None:
    code = (
        "import sys; from edgert.cli import run_command; code = run_command(['chat'])\n"
        "print(code, [m for m in ('prompt_toolkit', 'asyncio', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], input="hi\n", capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 []"


BROKEN: dict[str, tuple[bytes | dict[str, Any], str]] = {
    "empty": (b"", "found no valid JSON"),
    "not utf-8": (b'{"format": "\xff"}', "found no UTF-8 at byte 12"),
    "deep": (b"[" * 100_000, "nested too deeply"),
    "a list": (b"[]", "found a JSON list"),
    "long number": (b'{"version": 1' + b"0" * 5000 + b"}", "found no valid JSON"),
    "too large": (b" " * (MAX_FILE_BYTES + 1), "found over 16777216 bytes"),
    "another format": (SAVED | {"format": "other"}, "format: found 'other'"),
    "no format": ({}, "format: found None"),
    "another version": (SAVED | {"version": 2}, "version: found 2, expected 1; use the version"),
    "version true": (SAVED | {"version": True}, "version: found True"),
    "one field more": (SAVED | {"tools": []}, "field: found 'tools', expected one of format"),
    "model": (SAVED | {"model": None}, "model: found None, expected a text"),
    "system": (SAVED | {"system": ["x"]}, "system: found ['x']"),
    "sampling list": (SAVED | {"sampling": []}, "sampling: found [], expected an object"),
    "sampling key": (SAVED | {"sampling": {"heat": 1}}, "found the keyword 'heat'"),
    "sampling value": (SAVED | {"sampling": {"top_p": 7}}, "top_p: found 7"),
    "sampling text": (SAVED | {"sampling": {"top_k": "many"}}, "top_k: found 'many'"),
    "huge temperature": (SAVED | {"sampling": {"temperature": 10**400}}, "sampling: "),
    "stop": (SAVED | {"sampling": {"stop": 5}}, "sampling: "),
    "bias list": (SAVED | {"sampling": {"logit_bias": [1]}}, "logit_bias: found [1]"),
    "bias key": (SAVED | {"sampling": {"logit_bias": {"x": 1}}}, "logit_bias: found 'x'"),
    "bias value": (SAVED | {"sampling": {"logit_bias": {"1": True}}}, "logit_bias: found '1': True"),
    "ignore_eos": (SAVED | {"sampling": {"ignore_eos": "yes"}}, "ignore_eos: found 'yes', expected true or false"),
    "messages": (SAVED | {"messages": {}}, "messages: found {}, expected a list"),
    "message": (SAVED | {"messages": ["hi", "ho"]}, "messages[0]: found 'hi'"),
    "role": (with_message(role="system"), "messages[0].role: found 'system', expected 'user'"),
    "content": (with_message(content=None), "messages[0].content: found None"),
    "message field": (with_message(name="x"), "messages[0]: found {"),
    "no answer": (SAVED | {"messages": SAVED["messages"][:1]}, "expected an answer to each question"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_one_error(name: str, tmp_path: Path) -> None:
    content, message = BROKEN[name]
    path = tmp_path / "a.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(ConversationError) as raised:
        load_conversation(path)
    assert message in str(raised.value) and str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["pipe", "folder", "device", "nul"])
def test_what_is_no_file_is_refused_at_once(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    path = {"device": Path("/dev/zero"), "nul": Path("a\0b")}.get(name, tmp_path / name)
    with pytest.raises(ConversationError, match=r"no regular file|cannot be read"):
        load_conversation(path)


def test_save_replaces_only_what_save_wrote(edgert_run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("precious")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, message in {
        "notes": "found another file",
        "folder": "found a folder",
        "pipe": "a device or pipe",
    }.items():
        done = edgert_run("chat", str(DEFAULT_MODEL), piped=f"hi\n/save {name}\n")
        assert done.returncode == 1 and message in done.stderr
    assert (tmp_path / "notes").read_text() == "precious"
    (tmp_path / "a.json").touch(mode=0o600)
    (tmp_path / "link").symlink_to("a.json")
    assert edgert_run("chat", str(DEFAULT_MODEL), piped="hi\n/save link\n").returncode == 0
    assert (tmp_path / "link").is_symlink() and (tmp_path / "a.json").stat().st_mode & 0o777 == 0o600
    assert load_conversation(tmp_path / "a.json").messages == SAVED["messages"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "folder", "link", "notes", "pipe"]


def test_a_killed_save_leaves_a_whole_file(command: list[str], tmp_path: Path) -> None:
    """A long conversation is saved again and again, and kill -9 comes at random moments while it is written."""
    print(f"EDGERT_TEST_SEED={SEED}")
    rng = random.Random(SEED)
    said = [{"role": role, "content": f"{role} " * 60_000} for role in ("user", "assistant")]
    (tmp_path / "long").write_text(json.dumps(SAVED | {"messages": said}))
    (tmp_path / "typed").write_text("/load long\n" + "/save a.json\n" * 2000)
    partial = tmp_path / ".a.json.partial"
    for _ in range(6):
        with open(tmp_path / "typed") as stdin:
            chat = subprocess.Popen(
                [*command, "chat", str(DEFAULT_MODEL)], stdin=stdin, stderr=subprocess.PIPE, cwd=tmp_path, text=True
            )
        assert chat.stderr is not None
        while "saved" not in chat.stderr.readline():
            assert chat.poll() is None
        while not partial.exists():
            assert chat.poll() is None
        time.sleep(rng.uniform(0, 0.004))
        chat.send_signal(signal.SIGKILL)
        chat.communicate()
        assert load_conversation(tmp_path / "a.json").messages == said
    assert {path.name for path in tmp_path.iterdir()} - {partial.name} == {"long", "typed", "a.json"}
    subprocess.run([*command, "chat", str(DEFAULT_MODEL)], input=b"/save a.json\n", cwd=tmp_path, check=True)
    assert {path.name for path in tmp_path.iterdir()} == {"long", "typed", "a.json"}


THOUGHT = "<think>\nIs it <b>? No: </thin </think>\n\nSo <think> is a tag."


def joined(text: str, cuts: list[int], marks: ThinkingMarks, *, is_inside: bool = False) -> tuple[str, str]:
    splitter = ThinkingSplitter(marks, is_inside=is_inside)
    ends = [0, *sorted(cuts), len(text)]
    parts = [part for a, b in pairwise(ends) for part in splitter.feed(text[a:b])]
    parts += splitter.finish()
    return (
        "".join(part.text for part in parts if part.is_thinking),
        "".join(part.text for part in parts if not part.is_thinking),
    )


@pytest.mark.parametrize(
    ("text", "is_inside", "thinking", "answer"),
    [
        (THOUGHT, False, "<think>\nIs it <b>? No: </thin </think>", "\n\nSo <think> is a tag."),
        (" \n<think>a</think>b", False, " \n<think>a</think>", "b"),
        ("a</think>b</think>", True, "a</think>", "b</think>"),
        ("no <think>a</think>", False, "", "no <think>a</think>"),
        ("<thin", False, "", "<thin"),
        ("  ", False, "", "  "),
        ("<think>cut </thi", False, "<think>cut </thi", ""),
    ],
)
def test_thinking_is_told_from_the_answer_however_it_is_cut(
    text: str, is_inside: bool, thinking: str, answer: str
) -> None:
    print(f"EDGERT_TEST_SEED={SEED}")
    rng = random.Random(SEED)
    for num_cuts in (0, *range(len(text)), 3 * len(text)):
        cuts = [rng.randrange(len(text) + 1) for _ in range(num_cuts)]
        assert joined(text, cuts, ThinkingMarks(), is_inside=is_inside) == (thinking, answer)


@pytest.mark.parametrize(
    ("name", "opening", "closing", "is_open"),
    [
        ("HuggingFaceTB-SmolLM3-3B", "<think>", "</think>", False),
        ("Qwen3.5-4B", "<think>", "</think>", True),
        ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "<think>", "</think>", True),
        ("ByteDance-Seed-OSS", "<seed:think>", "</seed:think>", False),
        ("mistralai-Ministral-3-14B-Reasoning-2512", "[THINK]", "[/THINK]", False),
        ("meta-llama-Llama-3.1-8B-Instruct", "<think>", "</think>", False),
    ],
)
def test_the_marks_of_real_templates(name: str, opening: str, closing: str, is_open: bool) -> None:
    path = Path(__file__).resolve().parents[3] / "shared" / "templates" / f"{name}.jinja"
    if not path.is_file():
        pytest.skip("../shared/templates is not here")
    template = ChatTemplate(path.read_text(encoding="utf-8"))
    marks = find_marks(template)
    assert marks == ThinkingMarks(opening, closing)
    assert begins_inside(template, [{"role": "user", "content": "hi"}], marks) == is_open


def test_control_characters_are_spelled_out() -> None:
    assert printable("a\x1b[31m\x07b\x7f\x9b\x00c") == r"a\x1b[31m\x07b\x7f\x9b\x00c"
    assert printable("good\rbad\r\nnext\tline é 😀\xa0\u202f") == "goodbad\nnext\tline é 😀\xa0\u202f"


def test_what_stands_between_quotes() -> None:
    assert unquoted('"""a\nb"""') == "a\nb"
    assert unquoted(' """\na\n""" ') == "a"
    assert unquoted('""""""') == ""
    assert unquoted("a") is None and unquoted('"""a') is None and unquoted('""""') is None
    assert is_open_quote('"""') and is_open_quote('"""a""') and is_open_quote('"""""')
    assert not is_open_quote('"""a"""') and not is_open_quote('say """')


def test_the_page_about_chat_has_every_command_and_its_pipe_works(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "chat.md").read_text(encoding="utf-8")
    usages = [command.usage.replace("|", "\\|") for command in COMMANDS.values()]
    assert sorted(re.findall(r"^\| `(/[^`]*)`", page, re.MULTILINE)) == sorted(usages)
    (line,) = re.findall(r"`(printf .* edgert chat)`", page)
    line = line.replace("edgert", f"{shlex.quote(sys.executable)} -m edgert")
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 2


def test_ctrl_c_while_it_loads_or_waits_for_a_pipe(command: list[str]) -> None:
    print(f"EDGERT_TEST_SEED={SEED}")
    rng = random.Random(SEED)
    for _ in range(4):
        chat = subprocess.Popen(
            [*command, "chat", str(DEFAULT_MODEL)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        # Before that the interpreter itself starts, and takes the signal.
        time.sleep(rng.uniform(0.3, 1.0))
        chat.send_signal(signal.SIGINT)
        assert chat.wait(60) == 130
        assert chat.communicate() == (b"", b"interrupted\n")
