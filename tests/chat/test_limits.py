"""Hostile chat templates: each is stopped with a typed error, in little time and memory."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from edgert.chat import ChatTemplate
from edgert.chat.limits import Limits
from edgert.errors import ChatTemplateError

USER = [{"role": "user", "content": "Hello"}]
# A tenth of the real limits: what is tested is that work is counted, and CI machines are slow.
LIMITS = Limits(output_chars=1 << 20, steps=30_000, items=20_000)
GROW = "{%% set ns = namespace(s=%s) %%}{%% for i in range(60) %%}{%% set ns.s = %s %%}{%% endfor %%}%s"

LOOPS = {
    "nested": "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
    "filtered": "{% for i in range(9999) %}{% for j in range(9999) if false %}{% endfor %}{% endfor %}",
    "macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "filters": "{% for i in range(9999) %}{% set x = 'abc' | upper | lower | title | trim %}{% endfor %}",
    "long operations": "{% set x = 'a' * 1000000 %}" + "{% set y = x | upper | lower | title %}" * 3000,
    "sorting": "{% for i in range(9999) %}{% set x = range(9999) | list | sort(reverse=true) %}{% endfor %}",
    "many strings": "{{ range(9999) | map('center', 99999) | list | length }}",
}
GROWTH = {
    "output": "{% for i in range(9999) %}" + "x" * 10000 + "{% endfor %}",
    "captured": "{% set x %}{% for i in range(9999) %}{{ 'a' * 1000000 }}{% endfor %}{% endset %}",
    "captured text": "{% set x %}{% for i in range(9999) %}" + "x" * 10000 + "{% endfor %}{% endset %}",
    "times": "{{ 'a' * 10 ** 9 }}",
    "times list": "{{ [1] * 10 ** 9 }}",
    "times tuple": "{{ (1,) * 10 ** 9 }}",
    "concatenate": GROW % ("'aaaa'", "ns.s ~ ns.s", ""),
    "plus": GROW % ("'aaaa'", "ns.s + ns.s", ""),
    "plus list": GROW % ("[1, 2]", "ns.s + ns.s", ""),
    "power": "{{ 10 ** 10 ** 8 * 1 }}{% set x = 9999 ** 9999 %}",
    "product": GROW % ("9", "ns.s * ns.s", ""),
    "list in list": GROW % ("[1]", "[ns.s, ns.s]", "{{ ns.s }}"),
    "tuple in tuple": GROW % ("(1,)", "(ns.s, ns.s)", "{{ ns.s }}"),
    "dict in dict": GROW % ("1", "{'a': ns.s, 'b': ns.s}", "{{ ns.s | tojson }}"),
    "dict()": GROW % ("1", "dict(a=ns.s, b=ns.s)", "{{ ns.s == ns.s }}"),
    "fromkeys": GROW % ("1", "{}.fromkeys([1, 2, 3], ns.s)", ""),
    "batch": GROW % ("[1, 2, 3]", "ns.s | batch(2, ns.s) | list", ""),
    "values": GROW % ("1", "dict(a=ns.s, b=ns.s).values() | list", ""),
    "cycler": GROW % ("1", "cycler(ns.s, ns.s).items", ""),
    "namespaces": GROW % ("1", "namespace(a=ns.s, b=ns.s)", "{{ ns.s }}"),
    "center filter": "{{ 'a' | center(10 ** 9) }}",
    "center": "{{ 'a'.center(10 ** 9) }}",
    "ljust": "{{ 'a'.ljust(1000000000) }}",
    "zfill": "{{ 'a'.zfill(10 ** 9) }}",
    "expandtabs": "{{ ('\t' * 1000).expandtabs(99999) }}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (10 ** 9, 1) }}",
    "percent many": "{{ ('%(a)s' * 10000) % {'a': 'x' * 100000} }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "format": "{{ '{:>1000000000}'.format(1) }}",
    "format nested": "{{ '{:>{}}'.format(1, 10 ** 9) }}",
    "format_map": "{{ '{a:>1000000000}'.format_map({'a': 1}) }}",
    "format many": "{{ ('{0}' * 10000).format('x' * 100000) }}",
    "replace": "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
    "replace filter": "{{ ('a' * 100000) | replace('', 'b' * 100000) }}",
    "join": "{{ ','.join([('a' * 100000)] * 1000) }}",
    "join filter": "{{ range(9999) | join('a' * 100000) }}",
    "indent": "{{ ('a\n' * 100000) | indent(99999) }}",
    "indent text": "{{ ('a\n' * 100000) | indent('x' * 100000) }}",
    "slice": "{{ [1] | slice(10 ** 9) | list }}",
    "batch size": "{{ [1] | batch(10 ** 9, 'x') | list }}",
    "sum of lists": "{{ ([range(9999) | list] * 10) | sum(start=[]) | length }}",
    "split": "{{ ('a ' * 100000).split() | length }}",
    "date": "{{ strftime_now('%1000000000Y') }}",
    "source": "x" * 300_000,
}
FORBIDDEN = {
    "range": "{% for i in range(10 ** 9) %}x{% endfor %}",
    "recursion": "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "recursive loop": "{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "brackets": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "blocks": "{% if 1 %}" * 500 + "{% endif %}" * 500,
    "loops in loops": "{% for i in [1] %}" * 100 + "{% endfor %}" * 100,
    "class": "{{ ''.__class__.__mro__ }}",
    "globals": "{{ raise_exception.__globals__.x }}",
    "underscores by format": "{{ '{0.__class__.__mro__}'.format('') }}",
    "to_bytes": "{{ (1).to_bytes(10 ** 9, 'little') }}",
    "encode": "{{ 'a'.encode() }}",
    "translate": "{{ 'a'.translate({97: 'xxx'}) }}",
    "pprint": "{{ [] | pprint }}",
    "lipsum": "{{ lipsum(1000) }}",
    "import": "{% import 'x' as y %}",
}


@pytest.mark.parametrize("name", LOOPS)
def test_work_is_limited(name: str) -> None:
    began = time.monotonic()
    with pytest.raises(
        ChatTemplateError, match=r"more than 30000 steps of work|a string of|a collection of|characters p"
    ):
        ChatTemplate(LOOPS[name], limits=LIMITS).render(USER)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("name", GROWTH)
def test_growth_is_limited(name: str) -> None:
    """Stopped before the memory is taken."""
    tracemalloc.start()
    try:
        with pytest.raises(ChatTemplateError, match=r"more than|at most|format string"):
            ChatTemplate(GROWTH[name], limits=LIMITS).render(USER)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_a_template_may_not_do(name: str) -> None:
    with pytest.raises(ChatTemplateError, match="chat template"):
        ChatTemplate(FORBIDDEN[name], limits=LIMITS).render(USER)


def test_the_clock_stops_what_the_steps_do_not() -> None:
    limits = Limits(steps=1 << 40, seconds=0.2)
    began = time.monotonic()
    with pytest.raises(ChatTemplateError, match=r"more than 0\.2 seconds"):
        ChatTemplate(LOOPS["nested"], limits=limits).render(USER)
    assert time.monotonic() - began < 10


def test_the_output_is_limited() -> None:
    limits = Limits(output_chars=100)
    assert (
        ChatTemplate("{% for i in range(10) %}0123456789{% endfor %}", limits=limits).render(USER) == "0123456789" * 10
    )
    with pytest.raises(ChatTemplateError, match="more than 100 characters of output"):
        ChatTemplate("{% for i in range(11) %}0123456789{% endfor %}", limits=limits).render(USER)


def test_a_failure_leaves_the_template_usable() -> None:
    template = ChatTemplate("{% for i in range(messages | length * 9) %}{{ i }}{% endfor %}", limits=Limits(steps=40))
    for _ in range(3):
        assert template.render(USER) == "012345678"
        with pytest.raises(ChatTemplateError, match="more than 40 steps"):
            template.render(USER * 10)


def test_a_long_conversation_stays_within_the_limits() -> None:
    chatml = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
    messages = [{"role": "user", "content": "word " * 500}] * 2000
    assert len(ChatTemplate(chatml).render(messages)) > 5_000_000
