"""ConfigReader: every kind of value, its spellings, and the errors."""

from typing import Any

import pytest

from edgert.config import ConfigReader
from edgert.errors import ConfigError, UnsupportedModelError


def reader(**values: Any) -> ConfigReader:
    return ConfigReader(values, "m/config.json")


def test_values_that_are_there() -> None:
    r = reader(a=3, b=0.5, c=True, d="x", e=[1, 2], f=[0.5, 2], g={"h": 1}, i=4.0, j=["a"])
    assert (r.integer("a"), r.number("b"), r.number("a"), r.flag("c"), r.string("d")) == (3, 0.5, 3.0, True, "x")
    assert (r.integers("e"), r.integers("a"), r.numbers("f", length=2), r.strings("j")) == (
        (1, 2),
        (3,),
        (0.5, 2.0),
        ("a",),
    )
    section = r.section("g")
    assert section is not None and section.integer("h") == 1
    assert r.integer("i") == 4


def test_spellings_defaults_and_null() -> None:
    r = reader(new=None, old=5)
    assert r.integer("new", "old") == 5
    assert r.integer("new", default=7) == 7
    assert r.flag("none", default=False) is False
    assert (r.section("none"), r.integers("none"), r.strings("none")) == (None, (), ())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: r.integer("none"), "none: found nothing, expected a whole number"),
        (lambda r: r.integer("text"), "text: found 'abc', expected a whole number in 1..2147483647"),
        (lambda r: r.integer("flag"), "flag: found True"),
        (lambda r: r.integer("half"), "half: found 0.5"),
        (lambda r: r.integer("zero"), "zero: found 0"),
        (lambda r: r.integer("five", maximum=4), "five: found 5, expected a whole number in 1..4"),
        (lambda r: r.integer("huge"), "huge: found a huge whole number"),
        (lambda r: r.number("text"), "text: found 'abc', expected a finite number"),
        (lambda r: r.number("flag"), "flag: found True"),
        (lambda r: r.number("huge"), "huge: found a huge whole number, expected a finite number"),
        (lambda r: r.number("infinite"), "infinite: found inf"),
        (lambda r: r.number("zero", above=0.0), "zero: found 0, expected a finite number above 0"),
        (lambda r: r.number("five", maximum=1.0), "five: found 5, expected a finite number, at most 1"),
        (lambda r: r.flag("five"), "five: found 5, expected true or false"),
        (lambda r: r.string("five"), "five: found 5, expected a string"),
        (lambda r: r.integers("text"), "text: found 'abc', expected a whole number"),
        (lambda r: r.integers("mixed"), "mixed: found 'x', expected a whole number"),
        (lambda r: r.numbers("mixed", length=3), "mixed: found a list of 2, expected a list of 3 numbers"),
        (lambda r: r.numbers("mixed", length=2), "mixed: found 'x', expected a finite number"),
        (lambda r: r.numbers("none", length=2), "none: found None, expected a list of 2 numbers"),
        (lambda r: r.strings("mixed"), "mixed: found [1, 'x'], expected a list of strings"),
        (lambda r: r.section("five"), "five: found 5, expected an object"),
    ],
)
def test_errors_name_file_key_found_and_expected(call: Any, message: str) -> None:
    r = reader(
        text="abc", flag=True, half=0.5, zero=0, five=5, huge=10**400, infinite=float("inf"), mixed=[1, "x"]
    )  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        call(r)
    assert str(caught.value).startswith("m/config.json: ")
    assert message in str(caught.value)


def test_long_values_are_cut() -> None:
    with pytest.raises(ConfigError) as caught:
        reader(a="x" * 10_000).integer("a")
    assert len(str(caught.value)) < 300


def test_a_value_that_would_run_wrongly() -> None:
    r = reader(hidden_act="gelu")
    with pytest.raises(UnsupportedModelError, match="hidden_act is 'gelu', edgert runs 'silu' or 'swish'"):
        r.require("hidden_act", ("silu", "swish"), default="silu")
    reader().require("hidden_act", ("silu",), default="silu")
    with pytest.raises(UnsupportedModelError):
        reader(x=True).require("x", (1,), default=1)


def test_values_that_are_deep_or_large_are_shown_in_short() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    wide = [[1] * 1000] * 1000
    for value in (deep, wide, {str(i): i for i in range(1000)}, "\ud800" * 1000, [10**400]):
        with pytest.raises(ConfigError) as caught:
            reader(a=value).integer("a")
        assert len(str(caught.value)) < 600
        str(caught.value).encode()
