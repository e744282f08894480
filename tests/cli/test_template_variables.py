"""Tools and variables reach the chat template, from Python and from the command line."""

from pathlib import Path

import pytest

import edgert
from edgert.errors import ChatTemplateError, UsageError
from edgert.llm import DEFAULT_MODEL

from .conftest import Run

# Refuses every conversation with what it was given.
ECHO = "{{ raise_exception('thinking=' ~ enable_thinking ~ ' tools=' ~ (tools | map(attribute='name') | join('+'))) }}"
USER = [{"role": "user", "content": "Hello"}]
TOOLS = [{"name": "weather"}, {"name": "time"}]


@pytest.fixture
def echo_model(tmp_path: Path) -> Path:
    """The bundled model with a template that says what it was given."""
    folder = tmp_path / "echo"
    folder.mkdir()
    for path in DEFAULT_MODEL.iterdir():
        if path.name != "chat_template.jinja":
            (folder / path.name).write_bytes(path.read_bytes())
    (folder / "chat_template.jinja").write_text(ECHO)
    return folder


def test_chat_passes_tools_and_variables(echo_model: Path) -> None:
    with edgert.load(echo_model) as llm:
        for call in (llm.chat, llm.stream_chat):
            with pytest.raises(ChatTemplateError, match=r"thinking=False tools=weather\+time"):
                call(USER, tools=TOOLS, chat_template_kwargs={"enable_thinking": False})
            with pytest.raises(UsageError, match="chat_template_kwargs: found list, expected a dictionary"):
                call(USER, chat_template_kwargs=["enable_thinking"])  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["run", "chat"])
def test_the_option_passes_variables(edgert_run: Run, echo_model: Path, command: str) -> None:
    options = ["--chat-template-kwargs", '{"enable_thinking": false}']
    prompt = ["Hello"] if command == "run" else []
    done = edgert_run(command, str(echo_model), *prompt, *options, piped=None if prompt else "Hello\n")
    assert done.returncode == 1
    assert "thinking=False" in done.stderr


@pytest.mark.parametrize("command", ["run", "chat"])
@pytest.mark.parametrize("value", ["enable_thinking", "[1]", "{"])
def test_variables_that_are_no_object_are_refused(edgert_run: Run, command: str, value: str) -> None:
    done = edgert_run(command, "--chat-template-kwargs", value, piped="Hello\n")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "--chat-template-kwargs: found" in done.stderr
    assert "expected a JSON object" in done.stderr


def test_raw_text_takes_no_variables(edgert_run: Run) -> None:
    done = edgert_run("run", "Hello", "--raw", "--chat-template-kwargs", "{}")
    assert done.returncode == 1
    assert "--chat-template-kwargs: found beside --raw" in done.stderr
