"""model.safetensors of our folder, seen by the safetensors library and byte by byte."""

from __future__ import annotations

import json
import re
import struct
import zlib

import pytest
import safetensors

from edgert.convert import convert
from edgert.files import open_checkpoint

from .conftest import MOE

PLANES = {"scale": 0, "table": 0, "field": 0, "byte": 0, "nibble": 0, "plane1": 1, "plane2": 2}


@pytest.fixture(params=["p2", "p4", "p8", "c4", "q4_0", "keep"])
def converted(request, make_folder, tmp_path):
    convert(make_folder(MOE).path, tmp_path / "out", quant=request.param)
    return tmp_path / "out"


def raw_header(folder) -> tuple[int, dict]:
    data = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    return 8 + length, json.loads(data[8 : 8 + length])


def test_any_reader_lists_it(converted):
    with safetensors.safe_open(converted / "model.safetensors", "np") as file:
        names = set(file.keys())
        metadata = file.metadata()
        assert metadata["edgert.format_version"] == "1" and metadata["edgert.checksum"] == "crc32"
        for name, tensor in json.loads(metadata["edgert.tensors"]).items():
            keys = [part["tensor"] for part in tensor["parts"]] or [name]
            assert names.issuperset(keys)
            assert all(file.get_slice(key).get_dtype() == "U8" for key in keys if tensor["parts"])


def test_units_and_parts_are_aligned_and_padding_is_zero(converted):
    start, header = raw_header(converted)
    assert start % 4096 == 0
    data = (converted / "model.safetensors").read_bytes()
    units: dict[str, int] = {}
    for key, entry in header.items():
        if key == "__metadata__":
            continue
        begin, end = (start + offset for offset in entry["data_offsets"])
        if key.startswith("#pad."):
            assert not any(data[begin:end])
            continue
        assert begin % 64 == 0, key
        expert = re.match(r".+\.experts\.\d+", key)
        unit = expert[0] if expert else key.split("#")[0]
        units[unit] = min(units.get(unit, begin), begin)
    assert all(begin % 4096 == 0 for begin in units.values())
    assert len(units) > 10


def test_a_prefix_of_an_expert_is_a_coarser_expert(converted):
    _, header = raw_header(converted)
    prefix = "model.layers.1.mlp.experts.2."
    entries = sorted((e["data_offsets"][0], key) for key, e in header.items() if key.startswith(prefix))
    keys = [key[len(prefix) :] for _, key in entries]
    order = []
    for key in keys:
        matrix, _, part = key.partition("#")
        place = ("gate_proj.weight", "up_proj.weight", "down_proj.weight").index(matrix)
        order.append((PLANES.get(part, 0), place))
    assert order == sorted(order)
    if "gate_proj.weight#plane2" in keys:
        parts = ("scale", "table", "field") if "gate_proj.weight#table" in keys else ("scale", "field")
        first = [f"{m}_proj.weight#{part}" for m in ("gate", "up", "down") for part in parts]
        rest = [f"{m}_proj.weight#{part}" for part in ("plane1", "plane2") for m in ("gate", "up", "down")]
        assert keys == first + rest


def test_checksums_hold_and_change_with_a_bit(converted):
    start, header = raw_header(converted)
    data = (converted / "model.safetensors").read_bytes()
    tensors = json.loads(header["__metadata__"]["edgert.tensors"])
    count = 0
    for name, tensor in tensors.items():
        listed = [(part["tensor"], part["checksum"]) for part in tensor["parts"]] or [(name, tensor["checksum"])]
        for key, checksum in listed:
            begin, end = (start + offset for offset in header[key]["data_offsets"])
            assert checksum == f"crc32:{zlib.crc32(data[begin:end]):08x}", key
            assert checksum != f"crc32:{zlib.crc32(data[begin : end - 1] + bytes([data[end - 1] ^ 1])):08x}"
            count += 1
    assert count >= len(tensors) > 10


def test_our_reader_sees_roles_shapes_and_checksums(converted):
    checkpoint = open_checkpoint(converted)
    tensors = json.loads(raw_header(converted)[1]["__metadata__"]["edgert.tensors"])
    assert set(checkpoint.tensors) == set(tensors)
    for name, entry in checkpoint.tensors.items():
        assert list(entry.shape) == tensors[name]["shape"]
        assert entry.format == tensors[name]["format"]
        assert [part.checksum for part in entry.parts] == [part["checksum"] for part in tensors[name]["parts"]]
    assert tensors["model.layers.0.mlp.gate.weight"]["role"] == "router"
    assert tensors["model.layers.0.mlp.experts.0.down_proj.weight"]["role"] == "expert_down"
    assert tensors["model.embed_tokens.weight"]["role"] == "embedding"
