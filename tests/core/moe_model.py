"""A small mixture-of-experts model with the bundled tokenizer."""

import json
import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from edgert.llm import DEFAULT_MODEL

HIDDEN, WIDTH, LAYERS, EXPERTS, TOP_K = 64, 32, 3, 8, 2
EPS = 1e-6
Weights = dict[str, NDArray[np.float32]]


def moe_weights(seed: int, vocab_size: int, *, is_transparent: bool = False) -> Weights:
    """Random float32 weights. Transparent: attention and experts add nothing; every layer sees the embedding."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocab_size, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for i in range(LAYERS):
        p = f"model.layers.{i}"
        shapes |= {f"{p}.{name}.weight": (HIDDEN,) for name in ("input_layernorm", "post_attention_layernorm")}
        shapes |= {f"{p}.self_attn.{name}.weight": (16,) for name in ("q_norm", "k_norm")}
        shapes |= {f"{p}.self_attn.q_proj.weight": (64, HIDDEN), f"{p}.self_attn.o_proj.weight": (HIDDEN, 64)}
        shapes |= {f"{p}.self_attn.{name}.weight": (32, HIDDEN) for name in ("k_proj", "v_proj")}
        shapes |= {f"{p}.mlp.gate.weight": (EXPERTS, HIDDEN)}
        for e in range(EXPERTS):
            q = f"{p}.mlp.experts.{e}"
            shapes |= {f"{q}.{name}.weight": (WIDTH, HIDDEN) for name in ("gate_proj", "up_proj")}
            shapes |= {f"{q}.down_proj.weight": (HIDDEN, WIDTH)}
    weights = {}
    for name, shape in shapes.items():
        is_zero = is_transparent and name.endswith(("o_proj.weight", "down_proj.weight"))
        mean, spread = (1.0, 0.3) if len(shape) == 1 else (0.0, 0.0 if is_zero else 0.3)
        weights[name] = (mean + spread * rng.standard_normal(shape)).astype(np.float32)
    return weights


def write_moe(folder: Path, *, seed: int = 1, is_transparent: bool = False) -> tuple[Path, Weights]:
    """A Hugging Face folder."""
    vocab_size = json.loads((DEFAULT_MODEL / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    weights = moe_weights(seed, vocab_size, is_transparent=is_transparent)
    folder.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEFAULT_MODEL / name, folder / name)
    config = {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": vocab_size,
        "hidden_size": HIDDEN, "intermediate_size": 128, "moe_intermediate_size": WIDTH, "num_hidden_layers": LAYERS,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_experts": EXPERTS,
        "num_experts_per_tok": TOP_K, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "max_position_embeddings": 256, "rms_norm_eps": EPS, "rope_theta": 10000.0, "tie_word_embeddings": True,
        "hidden_act": "silu", "attention_bias": False, "eos_token_id": 0,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(weights, str(folder / "model.safetensors"))
    return folder, weights
