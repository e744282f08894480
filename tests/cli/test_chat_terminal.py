"""chat in a real terminal, with the bundled model."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tokenizers

from edgert.cli.chat.commands import COMMANDS
from edgert.engine.params import SamplingOptions
from edgert.llm import DEFAULT_MODEL

from .conftest import COMMAND
from .edited_model import ANSWER_TO_HI, edit_model
from .terminals import PROMPT, Terminal, needs_tmux

pytestmark = needs_tmux
LONG_ANSWER = ("--ignore-eos", "-c", "200000", "--temp", "1", "-s", "1")


def messages_of(path: Path) -> list[dict[str, str]]:
    return json.loads(path.read_text(encoding="utf-8"))["messages"]


def test_a_conversation_and_ctrl_d(terminal: Terminal) -> None:
    terminal.start("chat")
    assert "no model given" in terminal.wait_for(PROMPT)
    assert terminal.ask("hi").split("\n")[1].strip() == ANSWER_TO_HI
    terminal.keys("C-d")
    terminal.wait_for("exit code 0")


@pytest.mark.parametrize("word", ["/exit", "/quit", "/bye"])
def test_words_that_leave(terminal: Terminal, word: str) -> None:
    terminal.start("chat")
    terminal.wait_for(PROMPT)
    terminal.type(word)
    terminal.wait_for("exit code 0")


def test_ctrl_c_stops_the_answer_and_keeps_what_was_written(terminal: Terminal) -> None:
    terminal.start("chat", *LONG_ANSWER)
    terminal.wait_for(PROMPT)
    terminal.type("Tell me a story")
    time.sleep(1.5)
    terminal.keys("C-c")
    terminal.wait_for(PROMPT, 2)
    assert "saved 2 messages" in terminal.ask("/save a.json")
    question, answer = messages_of(terminal.folder / "a.json")
    assert question == {"role": "user", "content": "Tell me a story"}
    first_line = answer["content"].split("\n")[0].strip()
    assert len(answer["content"]) > 20 and first_line[:60] in terminal.screen()
    terminal.type("/exit")
    assert "Traceback" not in terminal.wait_for("exit code 0")


def test_ctrl_c_clears_the_line_and_then_leaves(terminal: Terminal) -> None:
    terminal.start("chat")
    terminal.wait_for(PROMPT)
    terminal.keys("half a line")
    terminal.wait_for("half a line")
    terminal.keys("C-c")
    terminal.wait_for(PROMPT, 2)
    terminal.keys("C-c")
    terminal.wait_for("exit code 0")


def test_each_command(terminal: Terminal) -> None:
    terminal.start("chat", "--system", "Be kind.")
    terminal.wait_for(PROMPT)
    shown = terminal.ask("/help")
    assert all(command.usage in shown for command in COMMANDS.values())
    assert "no question" in terminal.ask("/regen")
    assert "no answer yet" in terminal.ask("/stats")
    assert "0 of 1024 tokens" in terminal.ask("/tokens")
    assert "Be kind." in terminal.ask("/system")
    assert terminal.ask("/system Be brief.").count("\n") == 1
    assert "Be brief." in terminal.ask("/system")
    answer = terminal.ask("hi").split("\n")[1].strip()

    # ChatML, as the bundled model's template writes it, and the tokenizers library as the judge.
    said = [("system", "Be brief."), ("user", "hi"), ("assistant", answer)]
    text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in said)
    library = tokenizers.Tokenizer.from_file(str(DEFAULT_MODEL / "tokenizer.json"))
    assert f"{len(library.encode(text).ids)} of 1024 tokens" in terminal.ask("/tokens")
    ids = library.encode("strawberry pie").ids
    split = terminal.ask("/tokens strawberry pie")
    assert f"{len(ids)} tokens: " in split
    assert re.findall(r'":(\d+)', split) == [str(token) for token in ids]
    assert "".join(re.findall(r'"([^"]*)":', split)) == "strawberry pie"

    assert "the same answer" in terminal.ask("/regen")
    assert [line.strip() for line in terminal.ask("/regen").split("\n")].count(answer) == 1
    stats = terminal.ask("/stats")
    assert re.search(r"\d+ reused, 1 computed", stats)
    assert re.search(r"memory \d+\.\d+ of \d+\.\d GB/s \(\d+ %", stats)
    assert terminal.ask("/stats on").count("\n") == 1
    assert "reused" in terminal.ask("And you?")
    assert "expected on or off" in terminal.ask("/stats maybe")
    assert "4 messages to a.json" in terminal.ask("/save a.json")
    assert terminal.ask("/clear").count("\n") == 1
    assert "0 of 1024 tokens" in terminal.ask("/tokens")
    assert "loaded 4 messages" in terminal.ask("/load a.json")
    assert "error: nowhere.json: cannot be read (No such file or directory)" in terminal.ask("/load nowhere.json")
    assert "found no file" in terminal.ask("/save")
    unknown = terminal.ask("/foo bar")
    assert "error: /foo: no such command, expected one of: /help" in unknown and unknown.strip().count("\n") == 1
    assert "shown" in terminal.ask("/think")
    terminal.ask("/think off")
    assert "hidden" in terminal.ask("/think")
    terminal.type("/exit")
    assert "Traceback" not in terminal.wait_for("exit code 0")


def test_set_changes_every_option(terminal: Terminal) -> None:
    terminal.start("chat")
    terminal.wait_for(PROMPT)
    shown = terminal.ask("/set")
    assert "temperature 0.0" in shown  # generation_config.json of the bundled model draws nothing
    assert set(re.findall(r"^(\w+) ", shown, re.MULTILINE)) == SamplingOptions.__annotations__.keys() - {"logprobs"}
    for change, wanted in {
        "temperature 0.7": "temperature 0.7",
        "seed 7": "seed 7",
        "max_tokens 3": "max_tokens 3",
        "stop . and on": 'stop ". and on"',
        'stop ["a", "b"]': 'stop ["a", "b"]',
        'logit_bias {"5": -2}': 'logit_bias {"5": -2.0}',
        "ignore_eos on": "ignore_eos true",
        "stop none": "stop none",
    }.items():
        assert terminal.ask(f"/set {change}").count("\n") == 1
        assert wanted in terminal.ask(f"/set {change.split()[0]}")
    for wrong, message in {
        "temperature hot": "temperature: found 'hot', expected a finite number of at least 0",
        "temperature true": "temperature: found 'true'",
        "top_p 2": "top_p: found 2, expected a finite number above 0 and at most 1",
        "top_k 1.5": "top_k: found 1.5, expected an integer",
        f"temperature 1{'0' * 400}": "expected a smaller number",
        'logit_bias {"99999": 1}': "logit_bias: token id: found 99999",
        "logit_bias [1]": "logit_bias: found [1]",
        "ignore_eos 1": "ignore_eos: found '1', expected on or off",
        "heat 1": "/set: found 'heat', expected one of: max_tokens, temperature",
    }.items():
        answer = terminal.ask(f"/set {wrong}")
        assert f"error: {message}" in answer or message in answer, answer
    assert "temperature 0.7" in terminal.ask("/set temperature")
    terminal.ask("/set temperature 1")
    terminal.ask("/set stop none")
    terminal.ask("/set logit_bias none")
    first = terminal.ask("Tell me a story").split("\n")[1].strip()
    again = terminal.ask("/regen")
    assert "the same answer" in again and again.strip().split("\n")[-1].strip() == first


def test_regen_draws_another_seed(terminal: Terminal) -> None:
    terminal.start("chat", "--temp", "1.5", "--stats", "-n", "30")
    terminal.wait_for(PROMPT)
    answers = [terminal.ask("Tell me a story"), terminal.ask("/regen"), terminal.ask("/regen")]
    assert len({re.search(r"seed (\d+)", answer)[1] for answer in answers}) == 3  # type: ignore[index]
    assert "saved 2 messages" in terminal.ask("/save a.json")


def test_tab_completes(terminal: Terminal) -> None:
    (terminal.folder / "talk-of-monday.json").write_text("{}")
    terminal.start("chat")
    terminal.wait_for(PROMPT)
    for typed, wanted in {
        "/he": "/help",
        "/set see": "/set seed",
        "/stats of": "/stats off",
        "/load talk-of": "/load talk-of-monday.json",
    }.items():
        terminal.tmux("send-keys", "-l", typed)
        terminal.keys("Tab")
        terminal.wait_for(f"{PROMPT} {wanted}")
        terminal.keys("C-c")
        time.sleep(0.2)
    terminal.tmux("send-keys", "-l", "/s")
    terminal.keys("Tab")
    menu = terminal.wait_for("/stats [on|off]")
    assert all(usage in menu for usage in ("/system [TEXT]", "/set [OPTION [VALUE]]", "/save FILE"))


def test_up_brings_back_what_was_typed_in_an_earlier_chat(terminal: Terminal) -> None:
    terminal.start("chat", tail=f"; {shlex.join(COMMAND)} chat")
    terminal.wait_for(PROMPT)
    terminal.ask("first of all")
    terminal.ask("/tokens")
    terminal.keys("Up", "Up")
    terminal.wait_for("first of all", 2)
    terminal.keys("C-c")
    terminal.wait_for(PROMPT, 4)
    terminal.keys("C-d")
    terminal.wait_for("no model given", 2)
    terminal.keys("Up", "Up")
    terminal.wait_for("first of all", 3)
    history = terminal.folder / "state" / "edgert" / "history"
    assert history.stat().st_mode & 0o777 == 0o600


def test_messages_of_several_lines(terminal: Terminal) -> None:
    terminal.start("chat", "-n", "2")
    terminal.wait_for(PROMPT)
    terminal.type('"""one')
    terminal.type("  two")
    terminal.ask('three"""')
    terminal.keys("four", "M-Enter")
    terminal.ask("five")
    terminal.paste("six\n/seven\n")
    terminal.wait_for("/seven")
    terminal.ask("eight")
    terminal.ask('"""/help"""')
    terminal.ask("/save a.json")
    said = [message["content"] for message in messages_of(terminal.folder / "a.json") if message["role"] == "user"]
    assert said == ["one\n  two\nthree", "four\nfive", "six\n/seven\neight", "/help"]


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["colours", "no", "dumb"])
def test_a_terminal_of_20_columns(terminal: Terminal, environment: dict[str, str]) -> None:
    terminal.start("chat", columns=20, environment=environment)
    terminal.wait_for(PROMPT)
    assert ANSWER_TO_HI in terminal.ask("hi")
    help_text = terminal.ask("/help")
    assert all(command.usage in help_text for command in COMMANDS.values())
    assert [line for line in help_text.split("\n") if len(line.rstrip()) > 20 and not line.startswith("/")] == []
    assert f"{PROMPT} /help\n" in terminal.screen().replace(" \n", "\n")


def test_thinking_is_dimmed_and_can_be_hidden(terminal: Terminal, tmp_path: Path) -> None:
    model = edit_model(tmp_path / "thinker", {"Hi": "<think>hm", "!": "</think>\n\n"})
    terminal.start("chat", str(model))
    terminal.wait_for(PROMPT)
    terminal.ask("hi")
    coloured = terminal.screen(with_colours=True)
    assert "\x1b[2m<think>hm" in coloured
    assert not re.search(r"\x1b\[2m[^\x1b]*What can I do", coloured)
    terminal.ask("/think off")
    shown = terminal.ask("/regen")
    assert "hm" not in shown and "\nWhat can I do for you?" in shown
    assert "hm" in terminal.ask("/think on") + terminal.ask("/regen")
    terminal.ask("/save a.json")
    assert messages_of(tmp_path / "a.json")[1]["content"] == "<think>hm</think>\n\n What can I do for you?"


def test_no_color_takes_the_colours_away(terminal: Terminal, tmp_path: Path) -> None:
    model = edit_model(tmp_path / "thinker", {"Hi": "<think>hm", "!": "</think>\n\n"})
    terminal.start("chat", str(model), environment={"NO_COLOR": "1"})
    terminal.wait_for(PROMPT)
    terminal.ask("hi")
    coloured = terminal.screen(with_colours=True)
    assert "<think>hm</think>" in coloured and "\x1b[2m" not in coloured


def test_thinking_that_the_template_opens(terminal: Terminal, tmp_path: Path) -> None:
    model = edit_model(tmp_path / "thinker", {}, template_end="<think>\n")
    terminal.start("chat", str(model))
    terminal.wait_for(PROMPT)
    assert terminal.ask("hi").split("\n")[1].strip() == "<think>"
    terminal.ask("/think off")
    assert "the answer ended in its thinking" in terminal.ask("hi")


def test_hidden_thinking_shows_that_it_goes_on(terminal: Terminal) -> None:
    code = (
        "import time; from edgert.cli.chat.view import AnswerView; from edgert.cli.chat.thinking import ThinkingMarks\n"
        "view = AnswerView(ThinkingMarks(), is_inside=False, hides_thinking=True)\n"
        "view.show('<think>deep'); time.sleep(1.2); view.show(' thought</think>\\n\\nyes'); view.finish()"
    )
    terminal.run(shlex.join([sys.executable, "-c", code]))
    terminal.wait_for("thinking: 1 s")
    assert terminal.wait_for("exit code 0").split() == ["yes", "exit", "code", "0"]


def test_a_model_cannot_steer_the_terminal(terminal: Terminal, tmp_path: Path) -> None:
    model = edit_model(tmp_path / "rogue", {"Hi": "\x1b[2J\x1b]0;owned\x07", "!": "safe\runsafe"})
    terminal.start("chat", str(model), tail=f"; {shlex.join([*COMMAND, 'run', str(model), 'hi'])}")
    terminal.wait_for(PROMPT)
    wanted = r"\x1b[2J\x1b]0;owned\x07safeunsafe"
    assert wanted in terminal.ask("hi")
    assert "owned" not in terminal.tmux("display-message", "-p", "#{pane_title}")
    terminal.keys("C-d")
    assert terminal.wait_for("exit code 0").count(wanted) == 2
    piped = subprocess.run([*COMMAND, "run", str(model), "hi"], stdin=subprocess.DEVNULL, capture_output=True)
    assert piped.stdout.startswith(b"\x1b[2J\x1b]0;owned\x07safe\runsafe")


@pytest.mark.parametrize("what", ["no HOME", "read-only"])
def test_without_a_place_for_the_history(terminal: Terminal, tmp_path: Path, what: str) -> None:
    folder = tmp_path / "locked"
    if what == "no HOME":
        terminal.start("chat", environment={"HOME": None, "XDG_STATE_HOME": None})
    else:
        folder.write_text("a file where a folder should be: root may write anywhere else")
        terminal.start("chat", environment={"XDG_STATE_HOME": str(folder)})
    screen = terminal.wait_for(PROMPT)
    assert screen.count("the history is not kept") == 1
    terminal.ask("hi")
    terminal.keys("Up")
    terminal.wait_for(f"{PROMPT} hi", 2)
    terminal.keys("C-c")
    terminal.wait_for(PROMPT, 3)
    terminal.keys("C-d")
    assert terminal.wait_for("exit code 0").count("the history is not kept") == 1


def test_a_full_disk_leaves_the_old_file_whole(terminal: Terminal, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("cannot mount a tmpfs (needs root)")
    try:
        terminal.start("chat")
        terminal.wait_for(PROMPT)
        terminal.ask("hi")
        terminal.ask("/save disk/a.json")
        old = (disk / "a.json").read_bytes()
        (disk / "filler").write_bytes(bytes(12288))
        terminal.ask("Tell me a story about a cat and a dog")
        shown = terminal.ask("/save disk/a.json")
        assert "error: disk/a.json: cannot be saved (No space left on device), nothing was changed" in shown
        assert (disk / "a.json").read_bytes() == old
        assert sorted(path.name for path in disk.iterdir()) == ["a.json", "filler"]
        assert "cannot be saved (No such file" in terminal.ask("/save nowhere/a.json")
        (disk / "filler").unlink()
        assert "saved 4 messages" in terminal.ask("/save disk/a.json")
        assert len(messages_of(disk / "a.json")) == 4
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_message_that_does_not_fit_stays_to_be_edited(terminal: Terminal) -> None:
    terminal.start("chat", "-c", "40")
    terminal.wait_for(PROMPT)
    shown = terminal.ask("a b c d e f g h i j k l m n o p q r s t u v w x y z " * 2)
    assert "error: prompt: found " in shown
    terminal.wait_for(f"{PROMPT} a b c d e f", 2)
    terminal.keys("C-u")
    terminal.wait_for(PROMPT, 2)
    assert ANSWER_TO_HI in terminal.ask("hi")


def test_an_answer_stays_where_no_other_can_be_written(terminal: Terminal) -> None:
    terminal.start("chat", "-c", "40")
    terminal.wait_for(PROMPT)
    terminal.ask("hi")
    terminal.ask("/system " + "x y z " * 20)
    assert "error: prompt: found " in terminal.ask("/regen")
    terminal.ask("/save a.json")
    assert [message["content"] for message in messages_of(terminal.folder / "a.json")] == ["hi", ANSWER_TO_HI]


def test_a_full_context_offers_clear(terminal: Terminal) -> None:
    terminal.start("chat", "-c", "30")
    terminal.wait_for(PROMPT)
    assert "the context of 30 tokens is full: /clear begins a new conversation" in terminal.ask("Tell me a story")
    assert "/clear begins a new conversation" in terminal.ask("And then?")
    terminal.keys("C-u")
    terminal.ask("/clear")
    assert ANSWER_TO_HI in terminal.ask("hi")


def test_the_chat_ends_with_its_terminal(terminal: Terminal) -> None:
    terminal.start("chat", *LONG_ANSWER)
    terminal.wait_for(PROMPT)
    shell = terminal.tmux("display-message", "-p", "#{pane_pid}").strip()
    chat = Path(f"/proc/{shell}/task/{shell}/children")
    if not chat.exists():
        pytest.skip("/proc does not name children here")
    pids = [int(pid) for pid in chat.read_text().split()]
    terminal.type("Tell me a story")
    time.sleep(0.5)
    terminal.tmux("kill-server")
    ends = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        assert time.monotonic() < ends, "the chat outlives its terminal"
        time.sleep(0.05)
    history = terminal.folder / "state" / "edgert" / "history"
    assert "+Tell me a story\n" in history.read_text()


def test_answers_into_a_file(terminal: Terminal) -> None:
    terminal.start("chat", tail=" > answers")
    terminal.wait_for(PROMPT)
    terminal.ask("hi")
    terminal.type("/foo")
    terminal.wait_for("no such command")
    terminal.keys("C-d")
    terminal.wait_for("exit code 0")
    assert (terminal.folder / "answers").read_text() == ANSWER_TO_HI + "\n"
