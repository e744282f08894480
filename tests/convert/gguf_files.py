"""GGUF files with random weights, written byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_GGUF_TYPES = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "q2_k": 10, "q3_k": 11, "q4_k": 12,
    "q5_k": 13, "q6_k": 14, "iq2_xxs": 16, "iq4_nl": 20, "iq4_xs": 23, "tq1_0": 34, "tq2_0": 35, "mxfp4": 39,
}  # fmt: skip
GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
PERMUTED_HEADS = {"attn_q": 4, "attn_k": 2}
GGUF_METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 128,
    "llama.embedding_length": 256,
    "llama.feed_forward_length": 512,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.dimension_count": 64,
    "llama.rope.freq_base": 10000.0,
}


def gguf_file(
    path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, tuple[str, np.ndarray, tuple[int, ...]]]
) -> Path:
    """GGUF version 3, little-endian, aligned to 32."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        out += _gguf_string(key) + _gguf_value(value)
    offset, blobs = 0, []
    for name, (kind, raw, shape) in tensors.items():
        blob = raw.tobytes()
        out += _gguf_string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        out += struct.pack("<IQ", _GGUF_TYPES[kind], offset)
        blobs.append(blob + bytes(-len(blob) % 32))
        offset += len(blobs[-1])
    out += bytes(-len(out) % 32)
    path.write_bytes(out + b"".join(blobs))
    return path


def _gguf_string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _gguf_value(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _gguf_string(value)
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    items = [_gguf_value(item) for item in value]
    return struct.pack("<I", 9) + items[0][:4] + struct.pack("<Q", len(items)) + b"".join(item[4:] for item in items)


def gguf_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, layer, inner = stem.split(".", 3)
        return f"blk.{layer}.{GGUF_NAMES[inner]}.{kind}"
    return f"{GGUF_NAMES[stem]}.{kind}"


def permuted(rows: np.ndarray, heads: int) -> np.ndarray:
    """As llama.cpp's converter writes q and k: the two halves of each head interleaved."""
    n, width = rows.shape
    return rows.reshape(heads, 2, n // heads // 2, width).swapaxes(1, 2).reshape(n, width)


def blocks(kind: str, x: np.ndarray) -> np.ndarray:
    """File bytes of a matrix. Blocks: random codes under small scales; what they stand for does not matter here."""
    if kind == "f32":
        return x.view(np.uint8).reshape(len(x), -1)
    if kind == "f16":
        return x.astype(np.float16).view(np.uint8).reshape(len(x), -1)
    size, columns, places = {
        "q8_0": (34, 32, (0,)),
        "q4_0": (18, 32, (0,)),
        "q4_1": (20, 32, (0, 2)),
        "q5_0": (22, 32, (0,)),
        "q5_1": (24, 32, (0, 2)),
        "q2_k": (84, 256, (80, 82)),
        "q3_k": (110, 256, (108,)),
        "q4_k": (144, 256, (0, 2)),
        "q5_k": (176, 256, (0, 2)),
        "q6_k": (210, 256, (208,)),
        "iq2_xxs": (66, 256, (0,)),
        "iq4_nl": (18, 32, (0,)),
        "iq4_xs": (136, 256, (0,)),
        "mxfp4": (17, 32, ()),
        "tq1_0": (54, 256, (52,)),
        "tq2_0": (66, 256, (64,)),
    }[kind]
    rng = np.random.default_rng(x.size)
    raw = rng.integers(0, 256, (len(x), x.shape[1] // columns, size), dtype=np.uint8)
    for place in places:
        raw[:, :, place : place + 2] = np.array([1e-3], np.float16).view(np.uint8)
    return raw.reshape(len(x), -1)
