"""A folder of ours, put together byte by byte, and descriptions of tensors with one broken rule each."""

import json
import struct
from pathlib import Path
from typing import Any


def tensor_file(tensors: dict[str, bytes], metadata: dict[str, str] | None = None, dtype: str = "U8") -> bytes:
    header: dict[str, Any] = {"__metadata__": metadata} if metadata is not None else {}
    position = 0
    for name, raw in tensors.items():
        shape = [len(raw)] if dtype == "U8" or "#" in name else [len(raw) // 4]
        kind = "U8" if "#" in name else dtype
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [position, position + len(raw)]}
        position += len(raw)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(tensors.values())


PARTS = [
    {"name": "scale", "tensor": "w#scale", "checksum": "crc32:0123abcd"},
    {"name": "field", "tensor": "w#field"},
]
PACKED = {"format": "p2", "shape": [16, 64], "role": "mlp_up", "parts": PARTS}


def write_own(folder: Path, described: Any, version: str = "1", extra: dict[str, bytes] | None = None) -> None:
    tensors = {"w#scale": b"s" * 32, "#pad.0": b"\0" * 8, "w#field": b"f" * 256, "norm": b"n" * 64} | (extra or {})
    metadata = {"edgert.format_version": version, "edgert.tensors": json.dumps(described)}
    (folder / "model.safetensors").write_bytes(tensor_file(tensors, metadata, dtype="F32"))


def change(**fields: Any) -> Any:
    return {"w": PACKED | fields}


OWN_BROKEN: dict[str, tuple[Any, str]] = {
    "no object": ({"w": 3}, "expected an object with format, shape and parts"),
    "no format": ({"w": {"shape": [16, 64], "parts": PARTS}}, "expected an object with format"),
    "shape empty": (change(shape=[]), "found shape"),
    "shape of four": (change(shape=[1, 1, 16, 64]), "found shape"),
    "shape negative": (change(shape=[-16, 64]), "found shape"),
    "shape of floats": (change(shape=[16.0, 64]), "found shape"),
    "shape too large for the bytes": (change(shape=[2**20, 2**20]), "found 288 bytes for shape"),
    "parts no list": (change(parts={}), "expected a list of up to 10 parts"),
    "twelve parts": (change(parts=PARTS * 6), "expected a list of up to 10 parts"),
    "part no object": (change(parts=["w#scale"]), "expected parts with name and tensor"),
    "part unknown": (change(parts=[{"name": "scale", "tensor": "v#scale"}]), "expected a U8 tensor"),
    "part a float tensor": (change(parts=[{"name": "scale", "tensor": "norm"}]), "expected a U8 tensor"),
    "part twice": (change(parts=[PARTS[0], PARTS[0]]), "used twice"),
    "checksum of another kind": (change(parts=[PARTS[0] | {"checksum": "md5:1"}, PARTS[1]]), "found checksum 'md5:1'"),
    "a part of no tensor": (change(parts=[PARTS[0]], shape=[16, 16]), "found part 'w#field' of no tensor"),
    "float of another shape": ({"w": PACKED, "norm": {"format": "f32", "shape": [15], "parts": []}}, "of shape"),
    "float that is not there": ({"w": PACKED, "bias": {"format": "f32", "shape": [15], "parts": []}}, "of shape"),
    "a list": ([], "found a JSON list"),
}
