"""GGUF headers: whole files open as they should. Broken ones: malformed.py."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgert.errors import FileFormatError
from edgert.files import open_checkpoint

from .gguf_bytes import (
    ARRAY,
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STRING,
    TYPE_F32,
    TYPE_Q5_K,
    TYPE_Q8_0,
    U8,
    U16,
    U32,
    U64,
    gguf,
    key_value,
    string,
    tensor,
)  # fmt: skip


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes], Path]:
    def write_file(raw: bytes) -> Path:
        path = tmp_path / "model.bin"  # detected by content, not by name
        path.write_bytes(raw)
        return path

    return write_file


Write = Callable[[bytes], Path]


def test_values_of_every_type(write: Write) -> None:
    pairs: list[tuple[str, int, bytes, Any]] = [
        ("u8", U8, b"\xff", 255),
        ("i8", I8, b"\xff", -1),
        ("u16", U16, b"\xff\xff", 65535),
        ("i16", I16, b"\xff\xff", -1),
        ("u32", U32, b"\xff" * 4, 2**32 - 1),
        ("i32", I32, b"\xff" * 4, -1),
        ("f32", F32, struct.pack("<f", 0.5), 0.5),
        ("bool", BOOL, b"\1", True),
        ("string", STRING, string("grün"), "grün"),
        ("u64", U64, b"\xff" * 8, 2**64 - 1),
        ("i64", I64, b"\xff" * 8, -1),
        ("f64", F64, struct.pack("<d", 0.1), 0.1),
        ("numbers", ARRAY, struct.pack("<IQ3i", I32, 3, 1, -2, 3), [1, -2, 3]),
        ("bools", ARRAY, struct.pack("<IQ2?", BOOL, 2, True, False), [True, False]),
        ("strings", ARRAY, struct.pack("<IQ", STRING, 2) + string("a") + string(""), ["a", ""]),
        ("empty", ARRAY, struct.pack("<IQ", STRING, 0), []),
    ]
    checkpoint = open_checkpoint(write(gguf([key_value(key, kind, raw) for key, kind, raw, _ in pairs])))
    assert checkpoint.kind == "gguf"
    assert checkpoint.metadata == {key: value for key, _, _, value in pairs}
    assert {key: type(value) for key, value in checkpoint.metadata.items()} == {k: type(v) for k, _, _, v in pairs}


@pytest.mark.parametrize("version", [2, 3])
def test_tensors_lie_row_major_from_the_aligned_data(write: Write, version: int) -> None:
    raw = gguf(
        tensors=[tensor("a", (64, 3), TYPE_Q8_0, 0), tensor("b", (5,), TYPE_F32, 224), tensor("c", (32, 2, 4), 1, 256)],
        content=256 + 512,
        version=version,
    )
    path = write(raw)
    tensors = open_checkpoint(path).tensors
    start = len(raw) - 768
    assert [(t.name, t.format, t.shape, t.offset - start, t.length) for t in tensors.values()] == [
        ("a", "q8_0", (3, 64), 0, 204),
        ("b", "f32", (5,), 224, 20),
        ("c", "f16", (4, 2, 32), 256, 512),
    ]


def test_general_alignment_moves_the_data(write: Write) -> None:
    alignment = key_value("general.alignment", U32, struct.pack("<I", 256))
    raw = gguf([alignment], [tensor("a", (4,), 0, 256)], content=512, alignment=256)
    assert open_checkpoint(write(raw)).tensors["a"].offset == len(raw) - 256


def test_a_large_vocabulary_reads_across_the_pieces_of_a_file(write: Write) -> None:
    words = [f"token {i} " + "x" * (i % 97) for i in range(60_000)]
    array = struct.pack("<IQ", STRING, len(words)) + b"".join(string(word) for word in words)
    after = key_value("after", U32, struct.pack("<I", 7))
    metadata = open_checkpoint(write(gguf([key_value("tokenizer.ggml.tokens", ARRAY, array), after]))).metadata
    assert metadata == {"tokenizer.ggml.tokens": words, "after": 7}


def test_a_type_that_edgert_does_not_run_is_kept_by_name(write: Write) -> None:
    checkpoint = open_checkpoint(write(gguf(tensors=[tensor("a", (256, 2), TYPE_Q5_K, 0)], content=352)))
    assert checkpoint.tensors["a"].format == "q5_k"


def test_a_truncated_file_says_how_much_is_there(write: Write) -> None:
    raw = gguf(tensors=[tensor("a", (1024, 1024), 0, 0)], content=1_200_000)
    with pytest.raises(FileFormatError, match=r"file holds 1\.2 MB of 4\.2 MB: found .* the download did not finish"):
        open_checkpoint(write(raw))


def split_files(folder: Path, numbers: tuple[int, ...] = (0, 1, 2), count: int = 3, total: int = 3) -> list[Path]:
    paths = []
    for place, number in enumerate(numbers):
        fields = [
            key_value("split.no", U16, struct.pack("<H", number)),
            key_value("split.count", U16, struct.pack("<H", count)),
            key_value("split.tensors.count", I32, struct.pack("<i", total)),
        ]
        path = folder / f"m-{place + 1:05}-of-{len(numbers):05}.gguf"
        path.write_bytes(gguf(fields, [tensor(f"t{place}", (8,), 0, 0)], content=32))
        paths.append(path)
    return paths


@pytest.mark.parametrize("given", [0, 2])
def test_the_files_of_a_split_model_open_together(tmp_path: Path, given: int) -> None:
    paths = split_files(tmp_path)
    checkpoint = open_checkpoint(paths[given])
    assert checkpoint.files == tuple(paths)
    assert [(t.name, t.file) for t in checkpoint.tensors.values()] == [("t0", 0), ("t1", 1), ("t2", 2)]
