"""Sizes and rates as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.errors import UsageError
from edgert.offload.sizes import as_option, format_bytes, parse_bytes, parse_rate


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("1", 1),
        ("123456", 123456),
        ("7B", 7),
        ("2kB", 2000),
        ("2KB", 2000),
        ("3MB", 3_000_000),
        ("3GB", 3_000_000_000),
        ("2KiB", 2048),
        ("3MiB", 3 * 1048576),
        ("3GiB", 3 * 1073741824),
        ("1TiB", 1 << 40),
        ("3K", 3072),
        ("3M", 3 * 1048576),
        ("3G", 3 * 1073741824),
        ("3g", 3 * 1073741824),
        ("1.5GiB", 1610612736),
        (".5GiB", 536870912),
        ("2.GB", 2_000_000_000),
        (" 3 gib ", 3 * 1073741824),
        ("0.1GB", 100_000_000),
        ("1.0000000001kB", 1000),
    ],
)
def test_a_size(text: str, num_bytes: int) -> None:
    assert parse_bytes(text) == num_bytes


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "3 bananas", "GiB", "-3GiB", "+3GiB", "3GiBs", "3 Gi B", "1e9", "0", "0.0001B", "0x10", "nan", "inf",
        "1,5GiB", "3GiB/s", "9" * 30, "9" * 100, "\u0663GiB", "3\nGiB\x1b", "1..5G", ".",
    ],
)  # fmt: skip
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_bytes(text, "--ram")
    assert str(caught.value).startswith("--ram: found ")
    assert str(caught.value).endswith(", expected a size such as 3GiB, or auto")
    assert len(str(caught.value)) < 300


def test_the_error_names_what_was_found() -> None:
    with pytest.raises(UsageError, match=r"^--ram: found '3 bananas', expected a size such as 3GiB, or auto$"):
        parse_bytes("3 bananas", "--ram")


@pytest.mark.parametrize(
    ("text", "rate"),
    [("500MB/s", 500_000_000), ("500MB", 500_000_000), ("1.5 GiB/S ", 1610612736), ("64K/s", 65536), ("7/s", 7)],
)
def test_a_rate(text: str, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "/s", "fast", "5MB/m", "5MB/s/s", "0/s", "auto"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--disk-limit: found .*, expected a rate such as 500MB/s$"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (412 << 20, "412 MiB"),
        (3 << 30, "3 GiB"),
        (3 << 29, "1.5 GiB"),
        (100 << 20, "100 MiB"),
        (int(20.7 * 2**30), "20.7 GiB"),
    ],
)
def test_a_size_for_people(num_bytes: int, text: str) -> None:
    assert format_bytes(num_bytes) == text


@given(st.integers(1, 1 << 45))
def test_as_an_option_it_is_never_less_and_hardly_more(num_bytes: int) -> None:
    found = parse_bytes(as_option(num_bytes))
    assert num_bytes <= found + 1  # a tenth of a GiB is no whole number of bytes: rounded down
    assert found < num_bytes + (1 << 20 if num_bytes < 1 << 30 else (1 << 30) / 10 + 1)


@given(st.integers(1, 1 << 45))
def test_for_people_it_is_right_to_one_percent(num_bytes: int) -> None:
    assert parse_bytes(format_bytes(num_bytes).replace(" bytes", "")) == pytest.approx(num_bytes, rel=0.01)
