"""Makes tests/models/golden: tiny models of every architecture, with the logits that transformers computes in float32.

Needs torch, transformers and gguf, which the project itself does not use. From the root of the repository:

    python tools/make_model_fixtures.py

Each <name>.json holds the configuration, the shapes and the seed of the weights, and the versions used; <name>.npz the
token ids and the logits; <name>.gguf, for some, the same weights as benchmarks/make_gguf.py writes them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
import transformers

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "models" / "golden"
sys.path[:0] = [str(GOLDEN.parent), str(ROOT / "benchmarks")]

import golden_weights as recipe  # noqa: E402
from make_gguf import write_float  # noqa: E402

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
LOCAL = {"rope_type": "default", "rope_theta": 10000.0}
GEMMA3_ROPE = {
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": LOCAL,
    }
}
GRANITE = {
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.2,
    "residual_multiplier": 0.4,
    "logits_scaling": 2.0,
}
GEMMA = {"head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 16}
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
    "olmo3": ("olmo3", {"sliding_window": 16, "num_hidden_layers": 4, "intermediate_size": 40}, True, NUM_IDS),
    "olmo3_yarn": (
        "olmo3",
        {
            "sliding_window": 16,
            "layer_types": ["full_attention", "sliding_attention"],
            "rope_parameters": {"full_attention": ROPES["yarn"], "sliding_attention": LOCAL},
        },
        True,
        NUM_IDS,
    ),
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
    "granite": ("granite", GRANITE, True, NUM_IDS),
    "granite_bias": (
        "granite",
        {"attention_bias": True, "mlp_bias": True, "logits_scaling": 3.0, "tie_word_embeddings": True},
        True,
        NUM_IDS,
    ),
    "gemma2": ("gemma2", GEMMA | {"tie_word_embeddings": True, "num_hidden_layers": 3}, True, NUM_IDS),
    "gemma2_plain": (
        "gemma2",
        GEMMA
        | {"attn_logit_softcapping": None, "final_logit_softcapping": None, "query_pre_attn_scalar": 20}
        | {"attention_bias": True, "layer_types": ["full_attention", "sliding_attention"]},
        False,
        NUM_IDS,
    ),
    "gemma3": (
        "gemma3_text",
        GEMMA | {"tie_word_embeddings": True, "num_hidden_layers": 7, "intermediate_size": 24} | GEMMA3_ROPE,
        True,
        NUM_IDS,
    ),
    "gemma3_cap": (
        "gemma3_text",
        GEMMA
        | {
            "final_logit_softcapping": 8.0,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            "num_hidden_layers": 3,
        },
        False,
        NUM_IDS,
    ),
    "gemma3_images": (
        "gemma3",
        {
            "text_config": {**COMMON, **GEMMA, "num_hidden_layers": 7, "intermediate_size": 24},
            "vision_config": {
                "hidden_size": 16,
                "intermediate_size": 8,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "image_size": 28,
                "patch_size": 14,
            },
            "mm_tokens_per_image": 1,
            "eos_token_id": [1, 7],
        },
        False,
        NUM_IDS,
    ),
}
# Every kind of scaling that transformers takes in the architectures that came after Llama (Phi-3: only longrope).
SMALL: dict[str, Any] = {"vocab_size": 32, "head_dim": 8}
SCALED: dict[str, dict[str, Any]] = {
    "mistral": {},
    "mixtral": {"num_local_experts": 3},
    "qwen2": {},
    "olmo2": {},
    "smollm3": {},
    "granite": GRANITE,
    "gemma2": {"query_pre_attn_scalar": 8},
    "gemma3": {"query_pre_attn_scalar": 8, "layer_types": ["sliding_attention", "full_attention"]},
}
for _arch, _settings in SCALED.items():
    for _kind in ("linear", "dynamic", "yarn", "llama3", "longrope"):
        _rope: dict[str, Any] = {"rope_parameters": ROPES[_kind]}
        if _arch == "gemma3":
            _rope = {"rope_parameters": {"full_attention": ROPES[_kind], "sliding_attention": LOCAL}}
        if _kind == "dynamic":
            _rope["max_position_embeddings"] = 32
        _model_type = "gemma3_text" if _arch == "gemma3" else _arch
        MODELS.setdefault(f"{_arch}_{_kind}", (_model_type, SMALL | _settings | _rope, False, 40))


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
    common = {} if "text_config" in settings else COMMON
    config = transformers.AutoConfig.for_model(model_type, **common | settings)
    config.architectures = [transformers.AutoModelForCausalLM._model_mapping[type(config)].__name__]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        # Names and shapes as transformers saves them: one tensor for each expert.
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        saved = json.loads((folder / "config.json").read_text())
        with safetensors.safe_open(folder / "model.safetensors", "np") as file:
            shapes = {key: list(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
        weights = recipe.make_weights(shapes, SEED)
        ids = np.random.PCG64([SEED, len(name)]).random_raw(num_ids) % saved.get("text_config", saved)["vocab_size"]
        logits = reference_logits(recipe.write_folder(folder, saved, weights), ids.astype(np.int64))
        if model_type in ("qwen3_moe", "mixtral"):
            stacked = reference_logits(
                recipe.write_folder(folder / "stacked", saved, recipe.stack_experts(weights)), ids.astype(np.int64)
            )
            assert np.array_equal(stacked, logits), f"{name}: stacked experts give other logits"
        if has_gguf:
            write_float(folder, GOLDEN / f"{name}.gguf", as_f16=True)
    description = {"versions": versions(), "seed": SEED, "config": saved, "shapes": shapes}
    (GOLDEN / f"{name}.json").write_text(json.dumps(description, indent=1) + "\n")
    np.savez_compressed(GOLDEN / f"{name}.npz", ids=ids.astype(np.int32), logits=logits)
    return f"{name}: {sum(v.size for v in weights.values())} weights, largest logit {np.abs(logits).max():.2f}"


def reference_logits(folder: Path, ids: np.ndarray) -> np.ndarray:
    """float32 [len(ids), vocab_size]."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        return model.eval()(torch.from_numpy(ids)[None]).logits[0].float().numpy()


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for chosen in sys.argv[1:] or MODELS:
        print(make(chosen))
    print("made with", ", ".join(f"{package} {version}" for package, version in versions().items()))
