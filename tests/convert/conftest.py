"""Small checkpoints with random weights: Hugging Face folders and GGUF files, written byte by byte."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .gguf_files import GGUF_METADATA, PERMUTED_HEADS, blocks, gguf_file, gguf_name, permuted

SEED = int(os.environ.get("EDGERT_TEST_SEED", "1"))
_DTYPES = {"float32": "F32", "float16": "F16", "uint16": "BF16"}  # numpy has no bfloat16: uint16 stands for it

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 172,  # a multiple of no block
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GGUF_CONFIG = LLAMA | {"hidden_size": 256, "head_dim": 64, "intermediate_size": 512}
MOE = LLAMA | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "intermediate_size": 96,
    "moe_intermediate_size": 96,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "tie_word_embeddings": False,
}

Weights = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Folder:
    """A Hugging Face folder and what was written into it."""

    path: Path
    config: dict[str, Any]
    weights: Weights


MakeFolder = Callable[..., Folder]
MakeGguf = Callable[..., tuple[Path, Weights]]


@pytest.fixture
def make_folder(tmp_path: Path) -> MakeFolder:
    """make_folder(config, dtype="float16", stacked=False, shards=1, name="source") -> Folder."""

    def make(
        config: Mapping[str, Any] = LLAMA,
        dtype: str = "float16",
        *,
        stacked: bool = False,
        shards: int = 1,
        name: str = "source",
    ) -> Folder:
        return write_folder(tmp_path / name, config, dtype, stacked=stacked, shards=shards)

    return make


@pytest.fixture
def make_gguf(tmp_path: Path) -> MakeGguf:
    """make_gguf(kind, metadata=GGUF_METADATA) -> (path, {HF name: file bytes [rows, row_bytes] in HF order}).

    others: kinds of single matrices, by the last word of their name.
    """

    def make(
        kind: str, metadata: Mapping[str, Any] = GGUF_METADATA, others: Mapping[str, str] | None = None
    ) -> tuple[Path, Weights]:
        return write_gguf(tmp_path / "model.gguf", kind, metadata, others or {})

    return make


def write_gguf(
    path: Path, kind: str, metadata: Mapping[str, Any], others: Mapping[str, str]
) -> tuple[Path, dict[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    raws, tensors = {}, {}
    for name, shape in llama_shapes(GGUF_CONFIG):
        x = (rng.standard_normal(shape) * 0.1).astype(np.float32)
        stored_kind = others.get(name.split(".")[-2], kind) if len(shape) == 2 else "f32"
        raws[name] = raw = blocks(stored_kind, x) if len(shape) == 2 else x.view(np.uint8).reshape(1, -1)
        inner = gguf_name(name).split(".")[-2]
        heads = PERMUTED_HEADS.get(inner)
        tensors[gguf_name(name)] = (stored_kind, permuted(raw, heads) if heads else raw, shape)
    return gguf_file(path, metadata, tensors), raws


def write_folder(
    path: Path, config: Mapping[str, Any], dtype: str, *, stacked: bool = False, shards: int = 1
) -> Folder:
    print(f"EDGERT_TEST_SEED={SEED}")
    rng = np.random.default_rng(SEED)
    weights = {name: _values(rng, shape, dtype) for name, shape in llama_shapes(config)}
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(dict(config)))
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 3]}))
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    stored = stack_experts(weights, config) if stacked else weights
    names = list(stored)
    files = [names[i::shards] for i in range(shards)]
    if shards == 1:
        safetensors_file(path / "model.safetensors", stored)
    else:
        index = {}
        for i, part in enumerate(files):
            file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
            safetensors_file(path / file, {name: stored[name] for name in part})
            index |= dict.fromkeys(part, file)
        (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return Folder(path, dict(config), weights)


def llama_shapes(c: Mapping[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes of a Llama checkpoint, or an Arcee one, or a Qwen3-MoE one if the config has experts."""
    hidden, inner = c["hidden_size"], c["intermediate_size"]
    q, kv = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    shapes: list[tuple[str, tuple[int, ...]]] = [("model.embed_tokens.weight", (c["vocab_size"], hidden))]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        shapes += [(f"{p}.{norm}.weight", (hidden,)) for norm in ("input_layernorm", "post_attention_layernorm")]
        shapes += [
            (f"{p}.self_attn.{n}_proj.weight", s)
            for n, s in zip("qkvo", ((q, hidden), (kv, hidden), (kv, hidden), (hidden, q)), strict=True)
        ]
        mlps = [f"{p}.mlp"]
        if experts := c.get("num_experts"):
            shapes += [(f"{p}.self_attn.{n}_norm.weight", (c["head_dim"],)) for n in "qk"]
            shapes.append((f"{p}.mlp.gate.weight", (experts, hidden)))
            inner = c["moe_intermediate_size"]
            mlps = [f"{p}.mlp.experts.{e}" for e in range(experts)]
        for mlp in mlps:
            if c["model_type"] != "arcee":
                shapes.append((f"{mlp}.gate_proj.weight", (inner, hidden)))
            shapes += [(f"{mlp}.up_proj.weight", (inner, hidden)), (f"{mlp}.down_proj.weight", (hidden, inner))]
    shapes.append(("model.norm.weight", (hidden,)))
    return shapes if c["tie_word_embeddings"] else [*shapes, ("lm_head.weight", (c["vocab_size"], hidden))]


def stack_experts(weights: Weights, c: Mapping[str, Any]) -> Weights:
    """The spelling of transformers 5: gate over up, all experts in one tensor."""
    stored = {name: w for name, w in weights.items() if ".experts." not in name}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}.mlp.experts"
        each = [[weights[f"{p}.{e}.{m}_proj.weight"] for m in ("gate", "up", "down")] for e in range(c["num_experts"])]
        stored[f"{p}.gate_up_proj"] = np.stack([np.concatenate([gate, up]) for gate, up, _ in each])
        stored[f"{p}.down_proj"] = np.stack([down for _, _, down in each])
    return stored


def safetensors_file(path: Path, weights: Mapping[str, np.ndarray]) -> None:
    header: dict[str, Any] = {}
    offset = 0
    for name, w in weights.items():
        header[name] = {
            "dtype": _DTYPES[w.dtype.name],
            "shape": list(w.shape),
            "data_offsets": [offset, offset + w.nbytes],
        }
        offset += w.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(w.tobytes() for w in weights.values()))


def _values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    values = (rng.standard_normal(shape) * (0.1 if len(shape) == 2 else 1.0)).astype(np.float32)
    if dtype == "uint16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype)
