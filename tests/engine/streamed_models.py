"""Models that are large enough to be streamed beside the buffers that streaming takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import edgert
from edgert.engine import opening
from edgert.engine.memory_plan import MemoryPlanner
from edgert.llm import DEFAULT_MODEL
from edgert.loader import open_model

LAYERS, EXPERTS, TOP_K = 2, 16, 2
_HIDDEN, _HEADS, _HEAD_DIM, _EXPERT, _VOCAB = 128, 2, 64, 256, 64


PROGRAM_BYTES = 64 << 20


def open_with_least(
    monkeypatch: pytest.MonkeyPatch, path: Path = DEFAULT_MODEL, *, extra_bytes: int = 0, **options: Any
) -> edgert.LLM:
    """Opens a model with the least budget and so much more, as if the program took 64 MiB, whatever it does."""
    monkeypatch.setattr(opening, "resident_bytes", lambda: PROGRAM_BYTES)
    planner = MemoryPlanner(
        model=open_model(path), base_bytes=PROGRAM_BYTES, threads=2, context=256, batch_tokens=None, kv_format="f16"
    )
    return edgert.load(path, threads=2, context=256, ram=planner.minimum_bytes() + extra_bytes, **options)


def write_mixture(folder: Path, seed: int) -> Path:
    """A Qwen3 mixture of experts in f16 with random weights, without a tokenizer."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, cols: int) -> np.ndarray:
        return rng.normal(0, 0.05, (rows, cols)).astype(np.float16)

    width = _HEADS * _HEAD_DIM
    weights = {"model.embed_tokens.weight": matrix(_VOCAB, _HIDDEN), "lm_head.weight": matrix(_VOCAB, _HIDDEN)}
    weights["model.norm.weight"] = np.ones(_HIDDEN, np.float16)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}{name}.weight"] = np.ones(_HIDDEN, np.float16)
        for name in ("q", "k", "v"):
            weights[f"{prefix}self_attn.{name}_proj.weight"] = matrix(width, _HIDDEN)
        weights[f"{prefix}self_attn.o_proj.weight"] = matrix(_HIDDEN, width)
        for name in ("q_norm", "k_norm"):
            weights[f"{prefix}self_attn.{name}.weight"] = np.ones(_HEAD_DIM, np.float16)
        weights[f"{prefix}mlp.gate.weight"] = matrix(EXPERTS, _HIDDEN)
        for expert in range(EXPERTS):
            for name, rows, cols in (("gate", _EXPERT, _HIDDEN), ("up", _EXPERT, _HIDDEN), ("down", _HIDDEN, _EXPERT)):
                weights[f"{prefix}mlp.experts.{expert}.{name}_proj.weight"] = matrix(rows, cols)
    config = {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": _HIDDEN,
        "num_hidden_layers": LAYERS, "num_attention_heads": _HEADS, "num_key_value_heads": _HEADS,
        "head_dim": _HEAD_DIM, "intermediate_size": _EXPERT, "moe_intermediate_size": _EXPERT,
        "num_experts": EXPERTS, "num_experts_per_tok": TOP_K, "norm_topk_prob": True, "decoder_sparse_step": 1,
        "mlp_only_layers": [], "vocab_size": _VOCAB, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu",
    }  # fmt: skip
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder
