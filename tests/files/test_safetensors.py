"""safetensors headers: a whole file opens, and each broken rule has its error."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from edgert.errors import FileFormatError, UnsupportedFormatError
from edgert.files.safetensors import read_safetensors

A = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


def safetensors(header: Any, content: int = 0, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + b"\0" * content


def test_entries_have_offsets_in_the_file(tmp_path: Path) -> None:
    header = {"__metadata__": {"format": "pt"}, "b": {"dtype": "BF16", "shape": [], "data_offsets": [24, 26]}, "a": A}
    raw = safetensors(header, 26)
    (tmp_path / "x").write_bytes(raw)
    read = read_safetensors(tmp_path / "x", file_index=3)
    start = len(raw) - 26
    assert read.metadata == {"format": "pt"}
    assert [(t.name, t.format, t.shape, t.file, t.offset - start, t.length) for t in read.tensors.values()] == [
        ("b", "bf16", (), 3, 24, 2),
        ("a", "f32", (2, 3), 3, 0, 24),
    ]


BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "found 0 bytes"),
    "only a length": (struct.pack("<Q", 2), "found 8 bytes"),
    "length 0": (safetensors({"a": A}, 24, length=0), "found 0, expected 2 to 100000000"),
    "length 2^64 - 1": (safetensors({"a": A}, 24, length=2**64 - 1), "expected 2 to 100000000"),
    "length beyond the file": (safetensors({"a": A}, 24, length=5000), "the download did not finish"),
    "no UTF-8": (safetensors(b'{"\xff": 1}'), "not UTF-8 at byte 2"),
    "no JSON": (safetensors(b'{"a": '), "found no valid JSON"),
    "a list": (safetensors(b"[1, 2, 3]"), "found a JSON list, expected an object"),
    "nested without end": (safetensors(b'{"a":' + b"[" * 100_000), "nested too deeply"),
    "a huge number": (safetensors(b'{"a": ' + b"9" * 10_000 + b"}"), "found no valid JSON"),
    "not a number": (safetensors(b'{"a": NaN}'), "NaN is not a JSON number"),
    "name twice": (safetensors(b'{"a": {}, "a": {}}'), "key 'a' occurs twice"),
    "metadata of numbers": (safetensors({"__metadata__": {"a": 1}}), "expected an object of strings"),
    "metadata a list": (safetensors({"__metadata__": []}), "expected an object of strings"),
    "entry no object": (safetensors({"a": 3}), "expected an object with dtype, shape and data_offsets"),
    "entry without shape": (safetensors({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, 4), "expected an object with"),
    "shape of strings": (safetensors({"a": A | {"shape": ["2", 3]}}, 24), "found shape"),
    "shape negative": (safetensors({"a": A | {"shape": [-2, -3]}}, 24), "found shape"),
    "shape of floats": (safetensors({"a": A | {"shape": [2.0, 3]}}, 24), "found shape"),
    "shape of booleans": (safetensors({"a": A | {"shape": [True, 6]}}, 24), "found shape"),
    "shape too large": (safetensors({"a": A | {"shape": [2**62, 4]}}, 24), "found shape"),
    "nine dimensions": (safetensors({"a": A | {"shape": [1] * 8 + [6]}}, 24), "found shape"),
    "offsets reversed": (safetensors({"a": A | {"data_offsets": [24, 0]}}, 24), "expected [begin, end]"),
    "one offset": (safetensors({"a": A | {"data_offsets": [24]}}, 24), "expected [begin, end]"),
    "offsets negative": (safetensors({"a": A | {"data_offsets": [-24, 0]}}, 24), "expected [begin, end]"),
    "too few bytes": (safetensors({"a": A | {"data_offsets": [0, 20]}}, 20), "found 20 bytes, expected 24"),
    "a hole": (safetensors({"a": A | {"data_offsets": [8, 32]}}, 32), "found a hole after the header"),
    "an overlap": (safetensors({"a": A, "b": A | {"data_offsets": [16, 40]}}, 40), "found an overlap after 'a'"),
    "the same bytes": (safetensors({"a": A, "b": A}, 24), "found an overlap after 'a'"),
    "data cut off": (safetensors({"a": A}, 23), "the download did not finish"),
    "data too long": (safetensors({"a": A}, 25), "found 1 bytes after the last tensor"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_an_error_that_says_what(tmp_path: Path, name: str) -> None:
    raw, message = BROKEN[name]
    path = tmp_path / "x.safetensors"
    path.write_bytes(raw)
    with pytest.raises(FileFormatError) as caught:
        read_safetensors(path)
    assert message in str(caught.value)
    assert "x.safetensors" in str(caught.value)


def test_an_unknown_dtype_is_named_with_its_tensor(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(safetensors({"w": A | {"dtype": "F7"}}, 24))
    with pytest.raises(UnsupportedFormatError, match="tensor 'w': found dtype 'F7'"):
        read_safetensors(tmp_path / "x")
