"""Makes tests/models/golden: tiny models of every architecture, with the logits that transformers computes in float32.

Needs torch, transformers and gguf, which the project itself does not use. From the root of the repository:

    python tools/make_model_fixtures.py

Each <name>.json holds the configuration, the shapes and the seed of the weights, and the versions used; <name>.npz the
token ids and the logits; <name>.gguf, for some, the same weights as the gguf package writes them.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import safetensors
import torch
import transformers

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "models" / "golden"
sys.path.insert(0, str(GOLDEN.parent))

import golden_weights as recipe  # noqa: E402

SEED = 20
NUM_IDS = 70
COMMON: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 48,
    "intermediate_size": 88,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "dtype": "float32",
}
MOE = {"head_dim": 12, "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 40}
ROPES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 2.5, "rope_theta": 10000.0},
    "dynamic": {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 10000.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
        "rope_theta": 50000.0,
    },
    "longrope": {
        "rope_type": "longrope",
        "short_factor": [1.0, 1.1, 1.3, 1.7],
        "long_factor": [1.0, 1.9, 3.1, 5.5],
        "original_max_position_embeddings": 32,
        "rope_theta": 10000.0,
    },
    "longrope_partial": {
        "rope_type": "longrope",
        "short_factor": [1.0, 1.1, 1.3],
        "long_factor": [1.0, 1.9, 3.1],
        "original_max_position_embeddings": 32,
        "partial_rotary_factor": 0.75,
        "rope_theta": 10000.0,
    },
}
# Name: model_type, settings beside the common ones, whether a GGUF file is written, number of ids.
MODELS: dict[str, tuple[str, dict[str, Any], bool, int]] = {
    "llama": ("llama", {}, True, NUM_IDS),
    "llama3": ("llama", {"rope_parameters": ROPES["llama3"], "tie_word_embeddings": True}, True, NUM_IDS),
    "llama_linear": ("llama", {"rope_parameters": ROPES["linear"]}, False, NUM_IDS),
    "llama_dynamic": ("llama", {"rope_parameters": ROPES["dynamic"], "max_position_embeddings": 32}, False, NUM_IDS),
    "llama_yarn": ("llama", {"rope_parameters": ROPES["yarn"]}, True, NUM_IDS),
    "llama_longrope": ("llama", {"rope_parameters": ROPES["longrope"]}, False, NUM_IDS),
    "llama_longrope_short": ("llama", {"rope_parameters": ROPES["longrope"]}, False, 24),
    "llama_bias": ("llama", {"attention_bias": True, "mlp_bias": True}, True, NUM_IDS),
    "qwen3": ("qwen3", {"head_dim": 24}, True, NUM_IDS),
    "qwen3_window": (
        "qwen3",
        {"head_dim": 12, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
        False,
        NUM_IDS,
    ),
    "qwen3_moe": ("qwen3_moe", {**MOE, "norm_topk_prob": True}, True, NUM_IDS),
    "qwen3_moe_mixed": ("qwen3_moe", {**MOE, "norm_topk_prob": False, "mlp_only_layers": [0]}, False, NUM_IDS),
    "mistral": ("mistral", {"head_dim": 16, "sliding_window": 16}, True, NUM_IDS),
    "mixtral": ("mixtral", {"num_local_experts": 5, "num_experts_per_tok": 2}, True, NUM_IDS),
    "qwen2": ("qwen2", {}, True, NUM_IDS),
    "qwen2_window": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1, "tie_word_embeddings": True},
        False,
        NUM_IDS,
    ),
    "olmo2": ("olmo2", {}, True, NUM_IDS),
    "smollm3": ("smollm3", {"num_hidden_layers": 4}, True, NUM_IDS),
    "smollm3_window": (
        "smollm3",
        {"no_rope_layers": [0, 1], "use_sliding_window": True, "sliding_window": 16, "attention_bias": True},
        False,
        NUM_IDS,
    ),
    "phi3": ("phi3", {"sliding_window": 24}, True, NUM_IDS),
    "phi3_longrope": (
        "phi3",
        {"rope_parameters": ROPES["longrope_partial"], "original_max_position_embeddings": 32},
        True,
        NUM_IDS,
    ),
    "arcee": ("arcee", {"tie_word_embeddings": True}, True, NUM_IDS),
}
GGUF_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_up_proj": "ffn_up",
}
GGUF_POST_NORMS = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}


def versions() -> dict[str, str]:
    """What the fixtures were made with."""
    return {
        "numpy": np.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "gguf": metadata.version("gguf"),
    }


def make(name: str) -> str:
    """Writes one model's files; returns a line about it."""
    model_type, settings, has_gguf, num_ids = MODELS[name]
    config = transformers.AutoConfig.for_model(model_type, **COMMON | settings)
    config.architectures = [transformers.AutoModelForCausalLM._model_mapping[type(config)].__name__]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        # Names and shapes as transformers saves them: one tensor for each expert.
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        saved = json.loads((folder / "config.json").read_text())
        with safetensors.safe_open(folder / "model.safetensors", "np") as file:
            shapes = {key: list(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
        weights = recipe.make_weights(shapes, SEED)
        ids = np.random.PCG64([SEED, len(name)]).random_raw(num_ids) % COMMON["vocab_size"]
        logits = reference_logits(recipe.write_folder(folder, saved, weights), ids.astype(np.int64))
        if model_type in ("qwen3_moe", "mixtral"):
            stacked = reference_logits(
                recipe.write_folder(folder / "stacked", saved, recipe.stack_experts(weights)), ids.astype(np.int64)
            )
            assert np.array_equal(stacked, logits), f"{name}: stacked experts give other logits"
    description = {"versions": versions(), "seed": SEED, "config": saved, "shapes": shapes}
    (GOLDEN / f"{name}.json").write_text(json.dumps(description, indent=1) + "\n")
    np.savez_compressed(GOLDEN / f"{name}.npz", ids=ids.astype(np.int32), logits=logits)
    if has_gguf:
        write_gguf(GOLDEN / f"{name}.gguf", saved, weights)
    return f"{name}: {sum(v.size for v in weights.values())} weights, largest logit {np.abs(logits).max():.2f}"


def reference_logits(folder: Path, ids: np.ndarray) -> np.ndarray:
    """float32 [len(ids), vocab_size]."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        return model.eval()(torch.from_numpy(ids)[None]).logits[0].float().numpy()


def write_gguf(path: Path, config: dict[str, Any], weights: dict[str, np.ndarray]) -> None:
    """The model as the gguf package writes it: matrices in f16, vectors in f32, q and k of Llama in pairs."""
    model_type = config["model_type"]
    arch = {"qwen3_moe": "qwen3moe", "mistral": "llama", "mixtral": "llama"}.get(model_type, model_type)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_rope_dimension_count(int(head_dim * config["rope_parameters"].get("partial_rotary_factor", 1)))
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_vocab_size(config["vocab_size"])
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    if "num_local_experts" in config:
        writer.add_expert_count(config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if arch == "qwen3moe":
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    add_tokens(writer, config)
    add_rope_scaling(writer, config)
    for name, value in gguf_tensors(
        weights,
        heads,
        kv_heads,
        layer_names=GGUF_LAYER | (GGUF_POST_NORMS if arch == "olmo2" else {}),
        is_permuted=arch in ("llama", "arcee", "smollm3"),
    ).items():
        writer.add_tensor(name, value if value.ndim == 1 or "gate_inp" in name else value.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokens(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    """A vocabulary without meaning, so that other programs open the file too."""
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(config["vocab_size"] - 3)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(words)
    writer.add_token_scores([0.0] * len(words))
    writer.add_token_types([2, 3, 3] + [6] * (len(words) - 3))
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_eot_token_id(5)


def add_rope_scaling(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    """As llama.cpp's converter does it: YaRN as metadata, Llama 3 and LongRoPE as tensors of divisors."""
    rope = config["rope_parameters"]
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "longrope":
        original = rope["original_max_position_embeddings"]
        scale = config["max_position_embeddings"] / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(original)))
        for kind in ("long", "short"):
            writer.add_tensor(f"rope_factors_{kind}.weight", np.array(rope[f"{kind}_factor"], np.float32))
    if rope["rope_type"] == "llama3":
        factors = []
        for i in range(0, config["head_dim"], 2):
            wavelength = 2 * math.pi * rope["rope_theta"] ** (i / config["head_dim"])
            low, high = (rope["original_max_position_embeddings"] / rope[f"{k}_freq_factor"] for k in ("low", "high"))
            if wavelength < high:
                factors.append(1.0)
            elif wavelength > low:
                factors.append(rope["factor"])
            else:
                blend = (rope["original_max_position_embeddings"] / wavelength - rope["low_freq_factor"]) / (
                    rope["high_freq_factor"] - rope["low_freq_factor"]
                )
                factors.append(1 / ((1 - blend) / rope["factor"] + blend))
        writer.add_tensor("rope_freqs.weight", np.array(factors, np.float32))


def gguf_tensors(
    weights: dict[str, np.ndarray], heads: int, kv_heads: int, *, layer_names: dict[str, str], is_permuted: bool
) -> dict[str, np.ndarray]:
    """Tensors under GGUF's names, experts stacked."""
    found: dict[str, np.ndarray] = {}
    experts: dict[str, dict[int, np.ndarray]] = {}
    for name, value in weights.items():
        stem, _, kind = name.rpartition(".")
        if not stem.startswith("model.layers."):
            short = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}[stem]
            found[f"{short}.{kind}"] = value
            continue
        layer, _, inner = stem.removeprefix("model.layers.").partition(".")
        if ".experts." in inner:
            _, _, expert, matrix = inner.split(".")
            matrix = {"w1": "gate", "w2": "down", "w3": "up"}.get(matrix, matrix)
            experts.setdefault(f"blk.{layer}.ffn_{matrix.removesuffix('_proj')}_exps.weight", {})[int(expert)] = value
            continue
        if is_permuted and inner in ("self_attn.q_proj", "self_attn.k_proj"):
            count = heads if inner.endswith("q_proj") else kv_heads
            halves = value.reshape(count, 2, value.shape[0] // count // 2, *value.shape[1:])
            value = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(value.shape)
        found[f"blk.{layer}.{layer_names[inner]}.{kind}"] = value
    return found | {name: np.stack([parts[e] for e in range(len(parts))]) for name, parts in experts.items()}


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for chosen in sys.argv[1:] or MODELS:
        print(make(chosen))
    print("made with", ", ".join(f"{package} {version}" for package, version in versions().items()))
