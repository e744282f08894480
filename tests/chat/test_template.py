"""Chat templates: what transformers renders, where they come from, and how they fail."""

from __future__ import annotations

import json
import re
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import pytest
import tokenizers
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import processors

import edgert
from edgert.chat import ChatTemplate, encode_chat, load_chat_template
from edgert.chat.limits import Limits
from edgert.errors import ChatTemplateError, UsageError, one_line
from edgert.files.checkpoint import Checkpoint
from edgert.tokenizer import load

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = json.loads((Path(__file__).parent / "golden" / "templates.json").read_text(encoding="utf-8"))
USER = [{"role": "user", "content": "Hello"}]
CHATML = GOLDEN["templates"]["chatml"]


def case_name(case: dict[str, Any]) -> str:
    return f"{case['template']}-{case['conversation']}-{'tools' if case['tools'] else 'plain'}"


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=case_name)
def test_renders_as_transformers(case: dict[str, Any]) -> None:
    template = ChatTemplate(GOLDEN["templates"][case["template"]], "<s>", "</s>")
    arguments = (
        GOLDEN["conversations"][case["conversation"]],
        case["add_generation_prompt"],
        GOLDEN["tools"] if case["tools"] else None,
        case["variables"],
    )
    if "error" in case:
        with pytest.raises(ChatTemplateError, match=case["error"]):
            template.render(*arguments)
    else:
        assert template.render(*arguments) == case["text"]


class _Generation(Extension):
    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> Any:
        lineno = next(parser.stream).lineno
        return jinja2.nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=lineno)


def unlimited(source: str) -> jinja2.Template:
    """The template in a sandbox without limits."""

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = lambda value, indent=None, separators=None, sort_keys=False, ensure_ascii=False: (
        json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    )
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
    return environment.from_string(source)


def test_published_templates(shared: Path) -> None:
    """Each of them, in five settings: the text of the unlimited environment, or a typed error where that fails too."""
    paths = sorted((shared / "templates").glob("*.jinja"))
    assert len(paths) == 56
    conversations, num_rendered = GOLDEN["conversations"], 0
    settings: list[tuple[list[dict[str, Any]], Any, dict[str, Any]]] = [
        (conversations["turns"], None, {}),
        (conversations["system"], None, {}),
        (conversations["system"], GOLDEN["tools"], {}),
        (conversations["calls"], GOLDEN["tools"], {}),
        (conversations["turns"], None, {"enable_thinking": True}),
    ]
    for path in paths:
        source = path.read_text(encoding="utf-8")
        template, reference = ChatTemplate(source, "<s>", "</s>"), unlimited(source)
        for messages, tools, variables in settings:
            values = {"bos_token": "<s>", "eos_token": "</s>", "documents": None, **variables}
            values.update(messages=messages, tools=tools, add_generation_prompt=True)
            try:
                expected = reference.render(**values)
            except Exception as error:
                with pytest.raises(ChatTemplateError, match=r"chat template, line \d+: .") as caught:
                    template.render(messages, True, tools, variables)
                assert one_line(str(error))[:80] in str(caught.value), path.name
                continue
            assert template.render(messages, True, tools, variables) == expected, path.name
            num_rendered += 1
    assert num_rendered > 240


@pytest.mark.parametrize("has_post_processor", [False, True])
def test_no_second_bos(tmp_path: Path, has_post_processor: bool) -> None:
    """A tokenizer that adds bos, and a template that writes it: one bos, and special tokens are parsed."""
    folder = Path(edgert.__file__).parent / "assets" / "default"
    if not (folder / "tokenizer.json").is_file():
        pytest.skip("this installation has no bundled model")
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    bos = "<|endoftext|>"
    if has_post_processor:
        backend.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, 0)])
    backend.save(str(tmp_path / "tokenizer.json"))
    config = {"bos_token": bos, "eos_token": "<|im_end|>", "add_bos_token": True}
    config["chat_template"] = "{{ bos_token }}" + CHATML
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = edgert.load_tokenizer(tmp_path)
    template = load_chat_template(tmp_path, tokenizer)
    ids = encode_chat(tokenizer, template, USER)
    assert tokenizer.adds_bos
    assert ids.count(0) == 1
    assert ids.count(1) == 2, "<|im_start|> of the user and of the answer"
    assert ids.count(2) == 1
    assert tokenizer.decode(ids, skip_special=False) == template.render(USER)


def test_bundled_model() -> None:
    folder = Path(edgert.__file__).parent / "assets" / "default"
    if not (folder / "tokenizer.json").is_file():
        pytest.skip("this installation has no bundled model")
    tokenizer = load(folder)
    template = load_chat_template(folder, tokenizer)
    assert not template.is_plain
    assert template.render(USER) == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert template.render(USER, add_generation_prompt=False).endswith("Hello<|im_end|>\n")


class FakeTokenizer:
    """Stands for a tokenizer with a configuration."""

    def __init__(self, template: Any, *, adds_bos: bool = True) -> None:
        self.config = {} if template is None else {"chat_template": template}
        self.adds_bos = adds_bos
        self.bos_id, self.eos_id = 0, 1

    def token_text(self, token: int) -> str:
        return ["<s>", "</s>"][token]

    def encode(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        assert parse_special and not add_special
        return [len(text)]


def checkpoint(metadata: dict[str, Any]) -> Checkpoint:
    return Checkpoint(
        kind="gguf",
        path=Path("m.gguf"),
        files=(),
        config={},
        generation_config={},
        tensors={},
        metadata=metadata,
    )


def test_where_a_template_comes_from(tmp_path: Path) -> None:
    def first_line(tokenizer: FakeTokenizer, source: Any = tmp_path, tools: Any = None) -> str:
        return load_chat_template(source, tokenizer).render(USER, tools=tools)

    assert first_line(FakeTokenizer("one {{ eos_token }}")) == "one </s>"
    named = [{"name": "default", "template": "two"}, {"name": "tool_use", "template": "three"}]
    assert first_line(FakeTokenizer(named)) == "two"
    assert first_line(FakeTokenizer(named), tools=[{}]) == "three"
    (tmp_path / "chat_template.json").write_text('{"chat_template": "four"}')
    assert first_line(FakeTokenizer(None)) == "four"
    (tmp_path / "chat_template.jinja").write_text("five")
    assert first_line(FakeTokenizer("one")) == "five"
    model = checkpoint({"tokenizer.chat_template": "six", "tokenizer.chat_template.tool_use": "seven"})
    assert first_line(FakeTokenizer(None), model) == "six"
    assert first_line(FakeTokenizer(None), model, tools=[{}]) == "seven"


@pytest.mark.parametrize("entry", [3, [], [{"name": "x"}], {"default": 1}, [3]])
def test_an_entry_that_is_no_template(tmp_path: Path, entry: Any) -> None:
    with pytest.raises(ChatTemplateError, match="chat_template: found"):
        load_chat_template(tmp_path, FakeTokenizer(entry))


def test_a_model_without_a_template_gets_a_plain_one(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, *USER]
    template = load_chat_template(tmp_path, FakeTokenizer(None))
    assert template.is_plain
    assert template.stop_texts == ("\nUser:", "\nSystem:")
    assert template.render(messages) == "<s>System: Be brief.\n\nUser: Hello\n\nAssistant:"
    without_bos = load_chat_template(tmp_path, FakeTokenizer(None, adds_bos=False))
    assert without_bos.render(USER, add_generation_prompt=False) == "User: Hello\n\n"


def test_a_broken_template_breaks_only_chat(tmp_path: Path) -> None:
    template = load_chat_template(tmp_path, FakeTokenizer("one\ntwo {% for %}"))
    with pytest.raises(ChatTemplateError, match=r"chat template, line 2: found an error \(Expected an expression"):
        template.render(USER)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("\n{{ foo.bar }}", "line 2: found an error ('foo' is undefined"),
        ("a\nb\n{{ 1 / 0 }}", "line 3: found an error (division by zero"),
        ("{{ 1 | nofilter }}", "line 1: found an error (No filter named 'nofilter'"),
        ("\n\n{% foo %}", "line 3: found an error (Encountered unknown tag 'foo'"),
        ("{% include 'x' %}", "line 1: found an error (no loader"),
        ("{% macro f() %}\n{{ raise_exception('not me') }}{% endmacro %}\n{{ f() }}", "line 2: found an error (not me"),
    ],
)
def test_errors_name_the_line(source: str, message: str) -> None:
    with pytest.raises(ChatTemplateError, match=f"^chat template, {re.escape(message)}"):
        ChatTemplate(source).render(USER)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "messages: found an empty list"),
        ("Hello", "messages: found str, expected a list"),
        ({"role": "user", "content": "x"}, "messages: found dict, expected a list"),
        ([*USER, "x"], r"messages\[1\]: found str, expected a dictionary"),
        ([{"content": "x"}], r"messages\[0\]: found role None"),
        ([{"role": 3, "content": "x"}], r"messages\[0\]: found role 3"),
        ([{"role": "user"}], r"messages\[0\]: found no content"),
        ([{"role": "user", "content": 3}], r"messages\[0\]: found content of type int"),
        ([{"role": "user", "content": ["x"]}], r"messages\[0\]: content\[0\]: found 'x'"),
    ],
)
def test_messages_are_checked(messages: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ChatTemplate(CHATML).render(messages)


def test_messages_of_parts_and_calls_pass() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    assert ChatTemplate("{{ messages[0].content[0].text }}").render(parts) == "Hi"
    calls = [*USER, {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}]
    assert ChatTemplate("{{ messages[1].tool_calls[0].function.name }}").render(calls) == "f"


@pytest.mark.parametrize("tools", ["x", {}, [3]])
def test_tools_are_checked(tools: Any) -> None:
    with pytest.raises(UsageError, match="tools"):
        ChatTemplate(CHATML).render(USER, tools=tools)


def test_the_date() -> None:
    today = ChatTemplate("{{ strftime_now('%Y-%m-%d') }}").render(USER)
    assert abs((datetime.fromisoformat(today) - datetime.now()).days) <= 1


def test_messages_are_not_changed() -> None:
    messages = [{"role": "user", "content": "Hello", "extra": [1]}]
    with pytest.raises(ChatTemplateError, match="unsafe"):
        ChatTemplate("{% set x = messages[0].extra.append(2) %}").render(messages)
    assert messages == [{"role": "user", "content": "Hello", "extra": [1]}]


def test_threads_share_a_template() -> None:
    """One rendering's work fits the limits, that of two does not: each is to have its own budget."""
    source = "{% for m in messages %}{{ pause() }}{{ m.content }}{% endfor %}"
    template = ChatTemplate(source, limits=Limits(steps=100))
    wrong: list[object] = []

    def pause() -> str:
        time.sleep(0.002)
        return ""

    def work(name: str) -> None:
        try:
            for _ in range(5):
                text = template.render([{"role": "user", "content": name}] * 20, variables={"pause": pause})
                if text != name * 20:
                    wrong.append(text)
        except ChatTemplateError as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
