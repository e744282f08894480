"""Every option has an environment variable of the same meaning, and what is given goes before it."""

import json
from typing import Any

import pytest

from edgert.cli.app import COMMANDS, make_command
from edgert.cli.run import looks_like_model
from edgert.llm import DEFAULT_MODEL

from .conftest import Run

ROOT = make_command()


def parse(name: str, arguments: list[str]) -> dict[str, Any]:
    """The values that a command's function would get."""
    return dict(ROOT.get_command(None, name).make_context(name, arguments).params)


def options() -> list[tuple[str, Any]]:
    """Every option of every command but help, from the real parser."""
    return [
        (name, param)
        for name in COMMANDS
        for param in ROOT.get_command(None, name).params
        if param.param_type_name == "option"
    ]


OPTIONS = options()
IDS = [f"{name} {max(param.opts, key=len)}" for name, param in OPTIONS]
# For each placeholder in help: a value in the words of the shell, and another that the option must put in its place.
VALUES = {"N": ("3", "4"), "X": ("0.5", "0.25")}


def positional(name: str) -> list[str]:
    return [param.name for param in ROOT.get_command(None, name).params if param.required]


def test_the_walk_sees_the_options() -> None:
    assert {"run --temperature", "run --stop", "chat --model", "bench --prompt-tokens", "doctor --disk"} <= set(IDS)


@pytest.mark.parametrize(("name", "option"), OPTIONS, ids=IDS)
def test_every_option_has_a_twin(name: str, option: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = "EDGERT_" + max(option.opts, key=len)[2:].upper().replace("-", "_")
    long_name = max(option.opts, key=len)
    if option.is_flag:
        assert parse(name, positional(name))[option.name] is False
        assert parse(name, [*positional(name), long_name])[option.name] is True
        monkeypatch.setenv(variable, "0")
        assert parse(name, positional(name))[option.name] is False
        monkeypatch.setenv(variable, "1")
        assert parse(name, positional(name))[option.name] is True
    else:
        given, other = VALUES.get(option.metavar, ("a text", "another"))
        expected = parse(name, [*positional(name), long_name, given])[option.name]
        unset = parse(name, positional(name))[option.name]
        assert expected != unset
        monkeypatch.setenv(variable, given)
        assert parse(name, positional(name))[option.name] == expected
        monkeypatch.setenv(variable, other)
        assert parse(name, [*positional(name), long_name, given])[option.name] == expected
        monkeypatch.setenv(variable, "")
        assert parse(name, positional(name))[option.name] == unset


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_the_twins(name: str) -> None:
    command = ROOT.get_command(None, name)
    shown = " ".join(command.get_help(command.make_context(name, [], resilient_parsing=True)).split())
    for _, option in [pair for pair in OPTIONS if pair[0] == name]:
        assert f"env var: EDGERT_{max(option.opts, key=len)[2:].upper().replace('-', '_')}]" in shown.replace("; ", "]")


def test_a_wrong_value_names_the_variable(edgert_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value, code in [
        ("EDGERT_THREADS", "many", 2),
        ("EDGERT_TEMPERATURE", "hot", 2),
        ("EDGERT_STATS", "perhaps", 2),
        ("EDGERT_THREADS", "0", 1),
        ("EDGERT_TEMPERATURE", "-1", 1),
        ("EDGERT_MODEL", "nowhere.gguf", 1),
    ]:
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            done = edgert_run("run", "hi")
        assert (done.returncode, done.stdout) == (code, "")
        assert variable in done.stderr.splitlines()[-1]
        assert f"{value}" in done.stderr.splitlines()[-1]
    # Given wrongly: the option is named, and not the variable.
    assert "EDGERT_THREADS" not in edgert_run("run", "hi", "-t", "0").stderr
    assert "EDGERT_THREADS" not in edgert_run("run", "hi", "-t", "x").stderr


def test_stop_texts_stand_on_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGERT_STOP", "The end\nUser:\n")
    assert list(parse("run", [])["stop"]) == ["The end", "User:"]
    assert list(parse("run", ["--stop", "x"])["stop"]) == ["x"]


def test_the_model_of_the_environment(edgert_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGERT_MODEL", str(DEFAULT_MODEL))
    monkeypatch.setenv("EDGERT_JSON", "1")
    monkeypatch.setenv("EDGERT_TEMPERATURE", "0")
    assert not looks_like_model("Hello")
    alone = edgert_run("run", "Hello")
    assert alone.stderr == ""
    answer = json.loads(alone.stdout)
    assert json.loads(edgert_run("run", str(DEFAULT_MODEL), "Hello").stdout)["tokens"] == answer["tokens"]
    assert json.loads(edgert_run("run", piped="Hello\n").stdout)["tokens"] == answer["tokens"]
    monkeypatch.setenv("EDGERT_PROMPT", "Hello")
    assert json.loads(edgert_run("run").stdout)["tokens"] == answer["tokens"]


def test_a_model_that_is_given_goes_before_the_environment(edgert_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGERT_MODEL", "nowhere.gguf")
    assert edgert_run("run", str(DEFAULT_MODEL), "Hello").returncode == 0
    assert edgert_run("run", "-m", str(DEFAULT_MODEL), "Hello").returncode == 0
    assert edgert_run("run", str(DEFAULT_MODEL), piped="Hello\n").returncode == 0
    assert edgert_run("chat", str(DEFAULT_MODEL), piped="Hello\n").returncode == 0
    assert edgert_run("bench", str(DEFAULT_MODEL), "-t", "1", "-p", "8", "-n", "4").returncode == 0
