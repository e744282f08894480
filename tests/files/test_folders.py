"""Folders and detection by content: Hugging Face, sharded, our own, and what is refused."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgert.errors import EdgertError, FileFormatError, ModelNotFoundError, UnsupportedFormatError
from edgert.files import Part, open_checkpoint

from .own_folder import PACKED, tensor_file, write_own


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    return tmp_path


def write_shards(folder: Path, weight_map: dict[str, str] | None = None) -> None:
    (folder / "one.safetensors").write_bytes(tensor_file({"a": b"1234"}))
    (folder / "two.safetensors").write_bytes(tensor_file({"b": b"5678"}))
    weight_map = {"a": "one.safetensors", "b": "two.safetensors"} if weight_map is None else weight_map
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_a_folder_with_one_file(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(tensor_file({"a": b"1234"}))
    (folder / "generation_config.json").write_text('{"eos_token_id": 2}')
    checkpoint = open_checkpoint(folder)
    assert (checkpoint.kind, checkpoint.path, checkpoint.files) == (
        "huggingface",
        folder,
        (folder / "model.safetensors",),
    )
    assert checkpoint.config == {"model_type": "llama"}
    assert checkpoint.generation_config == {"eos_token_id": 2}
    assert checkpoint.num_bytes == 4


def test_shards_follow_the_index(folder: Path) -> None:
    write_shards(folder)
    checkpoint = open_checkpoint(str(folder))
    assert checkpoint.files == (folder / "one.safetensors", folder / "two.safetensors")
    assert {name: entry.file for name, entry in checkpoint.tensors.items()} == {"a": 0, "b": 1}


@pytest.mark.parametrize("name", ["one.safetensors", "two.safetensors"])
def test_a_shard_opens_its_whole_folder(folder: Path, name: str) -> None:
    write_shards(folder)
    assert set(open_checkpoint(folder / name).tensors) == {"a", "b"}


def test_another_file_of_the_folder_opens_alone(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(tensor_file({"a": b"1234"}))
    (folder / "other.weights").write_bytes(tensor_file({"c": b"1234"}))
    assert set(open_checkpoint(folder / "other.weights").tensors) == {"c"}


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", "a\\b", "c:x", "a\0b"]
)
def test_the_index_cannot_leave_the_folder(folder: Path, name: str) -> None:
    write_shards(folder, {"a": name})
    with pytest.raises(FileFormatError, match="expected a plain name inside the folder"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({}, "weight_map: found {}"),
        ([], r"weight_map: found \[\]"),
        ({"a": 3}, "found file name 3"),
        ({"a": "two.safetensors", "b": "two.safetensors"}, "tensor 'a': not found"),
        ({"a": "one.safetensors", "b": "one.safetensors"}, "tensor 'b': not found"),
        ({"a": "two.safetensors", "b": "one.safetensors"}, "expected it in two.safetensors"),
    ],
)
def test_an_index_that_is_wrong(folder: Path, weight_map: Any, message: str) -> None:
    write_shards(folder, weight_map)
    with pytest.raises(FileFormatError, match=message):
        open_checkpoint(folder)


def test_a_missing_shard(folder: Path) -> None:
    write_shards(folder)
    (folder / "two.safetensors").unlink()
    with pytest.raises(ModelNotFoundError, match=r"two\.safetensors"):
        open_checkpoint(folder)


def test_a_tensor_in_two_shards(folder: Path) -> None:
    write_shards(folder)
    (folder / "two.safetensors").write_bytes(tensor_file({"b": b"5678", "a": b"1234"}))
    with pytest.raises(FileFormatError, match=r"tensor 'a': found it in one\.safetensors too"):
        open_checkpoint(folder)


def test_several_files_without_an_index(folder: Path) -> None:
    write_shards(folder)
    (folder / "model.safetensors.index.json").unlink()
    with pytest.raises(FileFormatError, match=r"found 2 safetensors files .* expected model\.safetensors\.index\.json"):
        open_checkpoint(folder)


def test_one_file_by_any_name_is_enough(folder: Path) -> None:
    (folder / "weights.safetensors").write_bytes(tensor_file({"a": b"1234"}))
    assert set(open_checkpoint(folder).tensors) == {"a"}


CONTENT: dict[str, tuple[bytes, type[EdgertError], str]] = {
    "a zip pickle": (b"PK\x03\x04" + b"x" * 90, UnsupportedFormatError, "a pickle can run code"),
    "an old pickle": (b"\x80\x02\x8a\nl\xfc" + b"x" * 90, UnsupportedFormatError, "a pickle can run code"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\n", FileFormatError, "git lfs pull"),
    "a web page": (b"\n<!DOCTYPE html><html>", FileFormatError, "found a web page"),
    "a config.json": (b'{"model_type": "llama"}', FileFormatError, "give the folder that it lies in"),
    "nothing": (b"", FileFormatError, "found an empty file"),
    "something": (b"\x08\x08\x12\x04spox", UnsupportedFormatError, "expected GGUF or safetensors"),
    "a lone safetensors": (tensor_file({"a": b"1"}), ModelNotFoundError, "found no config.json beside it"),
}


@pytest.mark.parametrize("name", CONTENT)
def test_content_decides_whatever_the_name_says(tmp_path: Path, name: str) -> None:
    raw, error, message = CONTENT[name]
    path = tmp_path / "model.gguf"
    path.write_bytes(raw)
    with pytest.raises(error, match=message):
        open_checkpoint(path)


def test_paths_that_name_nothing(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path / "none" / "x.gguf", "a\0b", tmp_path, ""):
        with pytest.raises(ModelNotFoundError):
            open_checkpoint(path)
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(ModelNotFoundError):
        open_checkpoint(tmp_path / "file" / "x.gguf")


def test_a_pipe_is_refused_and_not_read(folder: Path) -> None:
    os.mkfifo(folder / "model.safetensors")
    with pytest.raises(FileFormatError, match="found a device, pipe or socket"):
        open_checkpoint(folder)
    with pytest.raises(FileFormatError, match="found a device, pipe or socket"):
        open_checkpoint(folder / "model.safetensors")


def test_a_loop_of_links(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(EdgertError):
        open_checkpoint(tmp_path / "a")


def test_a_folder_of_pickles(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"PK\x03\x04")
    with pytest.raises(UnsupportedFormatError, match=r"pytorch_model\.bin.*a pickle can run code"):
        open_checkpoint(folder)


def test_a_folder_without_weights(folder: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"found config\.json, expected a safetensors file"):
        open_checkpoint(folder)


def test_a_folder_of_gguf_files(tmp_path: Path) -> None:
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, 0)
    (tmp_path / "a.gguf").write_bytes(header)
    assert open_checkpoint(tmp_path).kind == "gguf"
    (tmp_path / "b.gguf").write_bytes(header)
    with pytest.raises(ModelNotFoundError, match=r"found 2 GGUF files \(a\.gguf, b\.gguf\)"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "no valid JSON"),
        (b"{", "no valid JSON"),
        (b"\xff{}", "not UTF-8"),
        (b"[]", "found a JSON list"),
        (b'{"a": 1, "a": 2}', "key 'a' occurs twice"),
        (b'{"a": Infinity}', "Infinity is not a JSON number"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "model.safetensors.index.json"])
def test_json_that_is_broken(folder: Path, name: str, raw: bytes, message: str) -> None:
    write_shards(folder)
    (folder / name).write_bytes(raw)
    with pytest.raises(FileFormatError, match=message) as caught:
        open_checkpoint(folder)
    assert name in str(caught.value)


def test_our_folder_has_parts(folder: Path) -> None:
    write_own(folder, {"w": PACKED})
    checkpoint = open_checkpoint(folder)
    assert checkpoint.kind == "edgert"
    assert set(checkpoint.tensors) == {"w", "norm"}
    entry = checkpoint.tensors["w"]
    start = (folder / "model.safetensors").stat().st_size - 360
    assert (entry.format, entry.shape, entry.length) == ("p2", (16, 64), 288)
    assert entry.parts == (
        Part("scale", start, 32, "crc32:0123abcd"),
        Part("field", start + 40, 256, None),
    )


def test_our_folder_may_describe_its_floats(folder: Path) -> None:
    write_own(
        folder, {"w": PACKED, "norm": {"format": "f32", "shape": [16], "parts": [], "checksum": "crc32:00000001"}}
    )
    norm = open_checkpoint(folder).tensors["norm"]
    assert (norm.parts, norm.checksum) == ((), "crc32:00000001")


def test_a_large_file_may_describe_more_tensors(folder: Path) -> None:
    """40,000 tensors make 300,000 values of JSON: too many for a small file, few for a gigabyte."""
    names = [f"t{i}" for i in range(40_000)]
    described = {name: {"format": "f32", "shape": [1], "role": "bias", "parts": []} for name in names}
    metadata = {"edgert.format_version": "1", "edgert.tensors": json.dumps(described)}
    header: dict[str, Any] = {"__metadata__": metadata}
    for i, name in enumerate(names):
        header[name] = {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]}
    size = 1 << 30
    header["large"] = {"dtype": "U8", "shape": [size], "data_offsets": [4 * len(names), 4 * len(names) + size]}
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + 4 * len(names) + size)
    assert len(open_checkpoint(folder).tensors) == 40_001
    del header["large"]
    text = json.dumps(header).encode()
    content = struct.pack("<Q", len(text)) + text + bytes(4 * len(names))
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(FileFormatError, match="values, expected at most"):
        open_checkpoint(folder)


def test_a_file_that_shrinks_while_it_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "model.safetensors").write_bytes(tensor_file({"a": b"1234"}))
    real: Callable[[int], os.stat_result] = os.fstat

    class Longer:
        def __init__(self, found: os.stat_result) -> None:
            self.st_size, self.st_mode = found.st_size + 100, found.st_mode

    monkeypatch.setattr("edgert.files.opening.os.fstat", lambda fd: Longer(real(fd)))
    with pytest.raises(FileFormatError):
        open_checkpoint(folder)
