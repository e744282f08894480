"""GGUF headers: a whole file opens, and each broken rule has its error."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgert.errors import FileFormatError, UnsupportedFormatError
from edgert.files import open_checkpoint

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
TYPE_F32, TYPE_Q8_0, TYPE_Q5_K = 0, 8, 13


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def key_value(key: str | bytes, kind: int, raw: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + raw


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def gguf(
    key_values: list[bytes] | None = None,
    tensors: list[bytes] | None = None,
    *,
    content: int = 0,
    version: int = 3,
    magic: bytes = b"GGUF",
    num_tensors: int | None = None,
    num_key_values: int | None = None,
    alignment: int = 32,
) -> bytes:
    key_values = [key_value("general.architecture", STRING, string("llama"))] if key_values is None else key_values
    tensors = tensors or []
    head = magic + struct.pack(
        "<IQQ",
        version,
        len(tensors) if num_tensors is None else num_tensors,
        len(key_values) if num_key_values is None else num_key_values,
    )
    head += b"".join(key_values) + b"".join(tensors)
    return head + b"\0" * (-len(head) % alignment) + b"\0" * content


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


BIG = 2**64 - 1
ONE_F32 = [tensor("a", (8,), 0, 0)]
BROKEN: dict[str, tuple[bytes, str]] = {
    "no header": (b"GGUF", "version at byte 4: found 0 bytes, expected 4"),
    "half a header": (gguf()[:20], "number of key-values at byte 16"),
    "too many key-values": (gguf(num_key_values=BIG), "number of key-values at byte 16"),
    "more key-values than fit": (gguf(num_key_values=50), "expected at most"),
    "more than 65536 key-values": (gguf(num_key_values=65537, content=1 << 21), "expected at most 65536"),
    "too many tensors": (gguf(num_tensors=BIG), "number of tensors at byte 8"),
    "more tensors than fit": (gguf(num_tensors=40), "number of tensors at byte 8"),
    "key too long": (gguf([struct.pack("<Q", BIG) + b"k" * 40]), "key 0 at byte 24: found 18446744073709551615 bytes"),
    "key beyond the file": (gguf([struct.pack("<Q", 60000) + b"k" * 40]), "expected 60000"),
    "empty key": (gguf([key_value("", U8, b"\0")]), "expected a key that is not empty"),
    "key twice": (gguf([key_value("a", U8, b"\0")] * 2), "found 'a', expected a key that is not empty and occurs once"),
    "key no UTF-8": (gguf([key_value(b"\xff\xfe", U8, b"\0")]), "found no UTF-8"),
    "unknown value type": (gguf([key_value("a", 13, b"\0" * 8)]), "found type 13, expected a type from 0 to 12"),
    "bool of 2": (gguf([key_value("a", BOOL, b"\2")]), "a byte other than 0 and 1"),
    "string beyond the file": (gguf([key_value("a", STRING, struct.pack("<Q", 1000))]), "expected 1000"),
    "string over a megabyte": (gguf([key_value("a", STRING, struct.pack("<Q", (1 << 20) + 1))]), "at most 1048576"),
    "string of 2^64 - 1": (gguf([key_value("a", STRING, struct.pack("<Q", BIG))]), "at most 1048576"),
    "string no UTF-8": (gguf([key_value("a", STRING, string(b"\xc3\x28"))]), "found no UTF-8"),
    "array of arrays": (gguf([key_value("a", ARRAY, struct.pack("<IQ", ARRAY, 1))]), "found an array of arrays"),
    "array of unknown type": (gguf([key_value("a", ARRAY, struct.pack("<IQ", 99, 1))]), "found an array of type 99"),
    "array of 2^64 - 1": (
        gguf([key_value("a", ARRAY, struct.pack("<IQ", U8, BIG))]),
        "expected at most 4194304 in all arrays",
    ),
    "arrays of 2^22 in all": (
        gguf([key_value(k, ARRAY, struct.pack("<IQ", U8, 1 << 21) + bytes(1 << 21)) for k in "abc"]),
        "value of 'c' at byte 4194395: found 2097152 elements",
    ),
    "array beyond the file": (gguf([key_value("a", ARRAY, struct.pack("<IQ", F64, 1000))]), "expected 8000"),
    "strings beyond the file": (gguf([key_value("a", ARRAY, struct.pack("<IQ", STRING, 1000))]), "expected 8000"),
    "string of an array too long": (
        gguf([key_value("a", ARRAY, struct.pack("<IQQ", STRING, 1, BIG))]),
        "element 0 at byte 49: found 18446744073709551615 bytes",
    ),
    "string of an array no UTF-8": (
        gguf([key_value("a", ARRAY, struct.pack("<IQ", STRING, 2) + string("a") + string(b"\xff"))]),
        "element 1 at byte",
    ),
    "bool of an array of 2": (gguf([key_value("a", ARRAY, struct.pack("<IQ3B", BOOL, 3, 0, 1, 2))]), "other than 0"),
    "alignment 0": (gguf([key_value("general.alignment", U32, struct.pack("<I", 0))]), "expected a power of two"),
    "alignment 48": (gguf([key_value("general.alignment", U32, struct.pack("<I", 48))]), "expected a power of two"),
    "alignment 128 KiB": (
        gguf([key_value("general.alignment", U32, struct.pack("<I", 1 << 17))]),
        "expected a power of two up to 65536",
    ),
    "alignment a string": (gguf([key_value("general.alignment", STRING, string("32"))]), "expected a power of two"),
    "alignment true": (gguf([key_value("general.alignment", BOOL, b"\1")]), "expected a power of two"),
    "name empty": (gguf(tensors=[tensor("", (8,), 0, 0)], content=32), "expected a name"),
    "name too long": (gguf(tensors=[tensor("n" * 256, (8,), 0, 0)], content=32), "found 256 bytes"),
    "name twice": (gguf(tensors=ONE_F32 * 2, content=64), "found 'a' again"),
    "no dimensions": (gguf(tensors=[tensor("a", (), 0, 0)], content=32), "found 0, expected 1 to 4"),
    "five dimensions": (gguf(tensors=[tensor("a", (1,) * 5, 0, 0)], content=32), "found 5, expected 1 to 4"),
    "2^32 - 1 dimensions": (
        gguf(tensors=[string("a") + struct.pack("<I", 2**32 - 1) + b"\0" * 40]),
        "expected 1 to 4",
    ),
    "a dimension of 0": (gguf(tensors=[tensor("a", (8, 0), 0, 0)], content=32), "expected dimensions above 0"),
    "half a block": (gguf(tensors=[tensor("a", (33,), TYPE_Q8_0, 0)], content=68), "the first a multiple of 32"),
    "elements that wrap to 0": (gguf(tensors=[tensor("a", (2**32, 2**32), 0, 0)], content=64), "below 2^31"),
    "elements that wrap to 8": (
        gguf(tensors=[tensor("a", (2**61 + 1, 8), 0, 0)], content=64),
        "expected dimensions below 2^31",
    ),
    "bytes that wrap": (
        gguf(tensors=[tensor("a", (2**30, 2**30, 2**4), 0, 0)], content=64),
        "expected dimensions below 2^31 and a size below 2^62",
    ),
    "offset not aligned": (gguf(tensors=[tensor("a", (8,), 0, 8)], content=64), "expected a multiple of 32"),
    "offset beyond the file": (gguf(tensors=[tensor("a", (8,), 0, 2**63)], content=64), "the download did not finish"),
    "offset that wraps": (gguf(tensors=[tensor("a", (8,), 0, 2**64 - 32)], content=64), "the download did not finish"),
    "overlap": (
        gguf(tensors=[tensor("a", (16,), 0, 0), tensor("b", (8,), 0, 32)], content=96),
        "found byte 32 of the data, inside 'a'",
    ),
    "the same bytes": (gguf(tensors=[tensor("a", (8,), 0, 0), tensor("b", (8,), 0, 0)], content=96), "inside 'a'"),
    "data cut off": (gguf(tensors=[tensor("a", (1024,), 0, 0)], content=100), "the download did not finish"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_an_error_that_says_what(write: Write, name: str) -> None:
    raw, message = BROKEN[name]
    with pytest.raises(FileFormatError) as caught:
        open_checkpoint(write(raw))
    assert message in str(caught.value)
    assert "model.bin" in str(caught.value)


def test_a_truncated_file_says_how_much_is_there(write: Write) -> None:
    raw = gguf(tensors=[tensor("a", (1024, 1024), 0, 0)], content=1_200_000)
    with pytest.raises(FileFormatError, match=r"file holds 1\.2 MB of 4\.2 MB .* the download did not finish"):
        open_checkpoint(write(raw))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (gguf(version=1), "GGUF version 1"),
        (gguf(version=4), "GGUF version 4"),
        (gguf(version=3 << 24), "big-endian"),
        (gguf(tensors=[tensor("blk.0.odd", (32,), 250, 0)], content=32), "tensor 'blk.0.odd' at byte"),
        (gguf(tensors=[tensor("a", (32,), 4, 0)], content=32), "found ggml type 4"),
    ],
)
def test_what_is_not_supported_is_named(write: Write, raw: bytes, message: str) -> None:
    with pytest.raises(UnsupportedFormatError, match=message):
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


def test_split_files_that_do_not_fit_together(tmp_path: Path) -> None:
    paths = split_files(tmp_path, numbers=(0, 2, 1))
    with pytest.raises(FileFormatError, match=r"split\.no: found 2, expected 1"):
        open_checkpoint(paths[0])
    paths = split_files(tmp_path, total=4)
    with pytest.raises(FileFormatError, match="found 3 tensors in 3 files, expected 4"):
        open_checkpoint(paths[0])
    with pytest.raises(FileFormatError, match="its name to end in"):
        open_checkpoint(paths[0].rename(tmp_path / "other.gguf"))
    with pytest.raises(FileFormatError, match=r"split\.count"):
        open_checkpoint(split_files(tmp_path, count=60000)[0])


def test_a_split_model_with_a_missing_file(tmp_path: Path) -> None:
    from edgert.errors import ModelNotFoundError

    paths = split_files(tmp_path)
    paths[1].unlink()
    with pytest.raises(ModelNotFoundError, match=r"m-00002-of-00003\.gguf.*all of its files are needed"):
        open_checkpoint(paths[0])
