"""safetensors files, put together byte by byte."""

import json
import struct
from typing import Any

A = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


def safetensors(header: Any, content: int = 0, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + b"\0" * content
