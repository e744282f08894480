"""The files that the documents name, made real: the bundled model as a Hugging Face folder and as a GGUF file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from convert.gguf_files import blocks, gguf_file, gguf_name, permuted
from safetensors.numpy import save_file

import edgert.quant.format as formats
from edgert.files import open_checkpoint
from edgert.llm import DEFAULT_MODEL

HEADS = {"attn_q": 4, "attn_k": 2}


def read_weights() -> dict[str, np.ndarray]:
    """The bundled model's weights in float32, by their Hugging Face names."""
    checkpoint = open_checkpoint(DEFAULT_MODEL)
    (path,) = checkpoint.files
    content = np.fromfile(path, np.uint8)
    weights = {}
    for name, entry in checkpoint.tensors.items():
        if not entry.parts:
            raw = content[entry.offset : entry.offset + entry.length]
            weights[name] = raw.view(np.float16).astype(np.float32).reshape(entry.shape)
        else:
            parts = [content[part.offset : part.offset + part.length] for part in entry.parts]
            kind = formats.get(entry.format)
            weights[name] = np.ascontiguousarray(kind.dequantize(kind.unpack(parts, *entry.shape)))
    return weights


def write_folder(folder: Path, weights: dict[str, np.ndarray], **changes: object) -> None:
    """As a model is published: config.json (with these changes), tokenizer, model.safetensors in float32."""
    folder.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(DEFAULT_MODEL / name, folder / name)
    config = json.loads((DEFAULT_MODEL / "config.json").read_text(encoding="utf-8"))
    del config["edgert"]
    (folder / "config.json").write_text(json.dumps(config | changes), encoding="utf-8")
    save_file(weights, str(folder / "model.safetensors"))


def write_arcee(folder: Path, weights: dict[str, np.ndarray]) -> None:
    """The same with squared ReLU in place of a gate."""
    kept = {name: weight for name, weight in weights.items() if "gate_proj" not in name}
    write_folder(folder, kept, architectures=["ArceeForCausalLM"], model_type="arcee", hidden_act="relu2")


def write_gguf(path: Path, weights: dict[str, np.ndarray], *, has_template: bool = True, **metadata: object) -> Path:
    """The same as a GGUF file, matrices in f16; `metadata` replaces values, with __ for each dot."""
    tokenizer = json.loads((DEFAULT_MODEL / "tokenizer.json").read_text(encoding="utf-8"))
    config = json.loads((DEFAULT_MODEL / "tokenizer_config.json").read_text(encoding="utf-8"))
    vocabulary = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    special = {token["content"] for token in tokenizer["added_tokens"]}
    values = {
        "general.architecture": "llama",
        "llama.block_count": 3,
        "llama.context_length": 1024,
        "llama.embedding_length": 256,
        "llama.feed_forward_length": 768,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": 64,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": vocabulary,
        "tokenizer.ggml.token_type": [3 if token in special else 1 for token in vocabulary],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in tokenizer["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
    }
    if has_template:
        values["tokenizer.chat_template"] = config["chat_template"]
    values |= {key.replace("__", "."): value for key, value in metadata.items()}
    tensors = {}
    for name, weight in weights.items():
        theirs = gguf_name(name)
        heads = HEADS.get(theirs.split(".")[-2])
        if weight.ndim == 1:
            tensors[theirs] = ("f32", weight, weight.shape)
        else:
            rows = permuted(weight, heads) if heads else weight
            tensors[theirs] = ("f16", blocks("f16", np.ascontiguousarray(rows)), weight.shape)
    return gguf_file(path, values, tensors)
