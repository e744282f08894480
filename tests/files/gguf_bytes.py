"""GGUF files, put together byte by byte."""

import struct

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
