"""safetensors headers: whole files open as they should. Broken ones: malformed.py."""

from pathlib import Path

import pytest

from edgert.errors import UnsupportedFormatError
from edgert.files.safetensors import read_safetensors

from .safetensors_bytes import A, safetensors


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


def test_an_unknown_dtype_is_named_with_its_tensor(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(safetensors({"w": A | {"dtype": "F7"}}, 24))
    with pytest.raises(UnsupportedFormatError, match="tensor 'w': found dtype 'F7'"):
        read_safetensors(tmp_path / "x")
