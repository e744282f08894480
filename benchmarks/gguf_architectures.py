"""GGUF names and metadata of each architecture, as llama.cpp's converter writes them, for make_gguf.py."""

import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "arcee": gguf.MODEL_ARCH.ARCEE,
    "gemma2": gguf.MODEL_ARCH.GEMMA2,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
    "granite": gguf.MODEL_ARCH.GRANITE,
    "mistral": gguf.MODEL_ARCH.LLAMA,
    "mixtral": gguf.MODEL_ARCH.LLAMA,
    "olmo2": gguf.MODEL_ARCH.OLMO2,
    "olmo3": gguf.MODEL_ARCH.OLMO2,
    "phi3": gguf.MODEL_ARCH.PHI3,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "smollm3": gguf.MODEL_ARCH.SMOLLM3,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
}
# llama.cpp turns neighbouring rows of q and k; Hugging Face turns the two halves.
ROPE_IN_PAIRS = {"llama", "arcee", "granite", "mistral", "mixtral", "smollm3"}
GEMMA = {"gemma2", "gemma3_text"}
_GRANITE_SCALES = {
    "embedding_multiplier": "add_embedding_scale",
    "attention_multiplier": "add_attention_scale",
    "residual_multiplier": "add_residual_scale",
    "logits_scaling": "add_logit_scale",
}
MIXTRAL_NAMES = {
    ".block_sparse_moe.experts.": ".mlp.experts.",
    ".w1.weight": ".gate_proj.weight",
    ".w2.weight": ".down_proj.weight",
    ".w3.weight": ".up_proj.weight",
}


def rope_pairs(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Row h * d + t * d/2 + j to row h * d + 2 j + t (d: head dimension)."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))


def gguf_tensors(config: dict[str, Any], tensors: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """The tensors under their GGUF names; experts are stacked into one tensor of (experts, rows, columns)."""
    architecture = ARCHITECTURES[config["model_type"]]
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    out: dict[str, NDArray[np.float32]] = {}
    experts: dict[str, dict[int, NDArray[np.float32]]] = {}
    for name, tensor in tensors.items():
        if config["model_type"] in ROPE_IN_PAIRS and ".self_attn.q_proj." in name:
            tensor = rope_pairs(tensor, config["num_attention_heads"])
        if config["model_type"] in ROPE_IN_PAIRS and ".self_attn.k_proj." in name:
            tensor = rope_pairs(tensor, config["num_key_value_heads"])
        if config["model_type"] in GEMMA and name.endswith("norm.weight"):
            tensor = tensor + np.float32(1)  # llama.cpp multiplies by what the file holds
        for theirs, ours in MIXTRAL_NAMES.items():
            name = name.replace(theirs, ours)
        if ".mlp.experts." in name:
            layer, _, rest = name.partition(".mlp.experts.")
            index, _, projection = rest.partition(".")
            experts.setdefault(f"{layer}.mlp.experts.{projection}", {})[int(index)] = tensor
            continue
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        out[_gguf_name(names, name)] = tensor
    for name, by_index in experts.items():
        out[_gguf_name(names, name)] = np.stack([by_index[i] for i in range(len(by_index))])
    return out


def _gguf_name(names: Any, name: str) -> str:
    if name == "lm_head.weight":
        return "output.weight"  # llama.cpp has no name for that of Gemma 2, which it always ties; edgert reads it
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    if found is None:
        sys.exit(f"{name}: found no GGUF name for it")
    return str(found)


def add_config(writer: gguf.GGUFWriter, config: dict[str, Any], folder: Path) -> None:
    writer.add_name(folder.name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if config["model_type"] in GEMMA:
        rope = add_gemma(writer, config, rope, head_dim)
    rope = rope.get("full_attention", rope)
    partial = rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    writer.add_rope_dimension_count(int(head_dim * partial))
    writer.add_rope_freq_base(config.get("rope_theta") or rope["rope_theta"])
    add_rope_scaling(writer, config, rope, head_dim)
    if config["model_type"] == "olmo3":
        writer.add_sliding_window(config["sliding_window"])
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])
    if config.get("sliding_window") and config["model_type"] in ("mistral", "mixtral", "phi3"):
        writer.add_sliding_window(config["sliding_window"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    # llama.cpp takes 4 for every SmolLM3 and has no key for another interval; edgert reads this one.
    interval = config.get("no_rope_layer_interval", 4)
    regular = [int((layer + 1) % interval != 0) for layer in range(config["num_hidden_layers"])]
    if (config.get("no_rope_layers") or regular) != regular:
        sys.exit(
            f"no_rope_layers: found {config['no_rope_layers']}, expected every layer number {interval} without RoPE"
        )
    if interval != 4:
        writer.add_uint32("smollm3.no_rope_layer_interval", interval)
    if config["model_type"] == "granite":
        for name, method in _GRANITE_SCALES.items():
            getattr(writer, method)(config[name])
    num_experts = config.get("num_local_experts") or config.get("num_experts")
    if num_experts:
        writer.add_expert_count(num_experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if config["model_type"] == "qwen3_moe":
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])


def add_gemma(writer: gguf.GGUFWriter, config: dict[str, Any], rope: dict[str, Any], head_dim: int) -> dict[str, Any]:
    """What Gemma 2 and 3 have beside the rest; returns the rotary positions of full layers.

    llama.cpp knows the scale of the scores and which layers have a window by the architecture alone.
    """
    layers, is_third = config["num_hidden_layers"], config["model_type"] == "gemma3_text"
    share = config["hidden_size"] // config["num_attention_heads"]
    scalar = share if layers == (62 if is_third else 46) else head_dim
    if config["query_pre_attn_scalar"] != scalar:
        sys.exit(f"query_pre_attn_scalar: found {config['query_pre_attn_scalar']}, expected {scalar}")
    period = 6 if is_third else 2
    types = ["sliding_attention" if (i + 1) % period else "full_attention" for i in range(layers)]
    if config.get("layer_types", types) != types:
        sys.exit(f"layer_types: found {config['layer_types']}, expected every layer number {period} to be full")
    writer.add_sliding_window(config["sliding_window"])
    if config["final_logit_softcapping"]:
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if not is_third:
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        return rope
    local = rope["sliding_attention"]
    if local["rope_type"] != "default":
        sys.exit(f"rope_type: found {local['rope_type']} for layers with a window, expected default")
    if local["rope_theta"] != 10000.0:
        writer.add_rope_freq_base_swa(local["rope_theta"])
    full: dict[str, Any] = rope["full_attention"]
    return full


def add_rope_scaling(writer: gguf.GGUFWriter, config: dict[str, Any], rope: dict[str, Any], head_dim: int) -> None:
    """As llama.cpp's converter does it: linear and YaRN as metadata, Llama 3 and LongRoPE as tensors of divisors."""
    kind = rope.get("rope_type") or rope.get("type") or "default"
    length = config["max_position_embeddings"]
    original = config.get("original_max_position_embeddings") or rope.get("original_max_position_embeddings") or length
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR if kind == "linear" else gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        if kind == "yarn":
            writer.add_rope_scaling_orig_ctx_len(original)
    elif kind == "llama3":
        theta = config.get("rope_theta") or rope["rope_theta"]
        turns = rope["original_max_position_embeddings"] / (2 * np.pi * theta ** (np.arange(0, head_dim, 2) / head_dim))
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
        writer.add_tensor("rope_freqs.weight", (1 / ((1 - kept) / rope["factor"] + kept)).astype(np.float32))
    elif kind in ("longrope", "su"):
        scale = length / original
        factor = np.sqrt(1 + np.log(scale) / np.log(original)) if scale > 1 else 1.0
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(float(rope.get("attention_factor") or factor))
        for which in ("long", "short"):
            writer.add_tensor(f"rope_factors_{which}.weight", np.array(rope[f"{which}_factor"], np.float32))
    elif kind != "default":
        sys.exit(f"rope_type: found {kind}, expected one that GGUF files can say")
