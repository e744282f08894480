"""GGUF metadata of each architecture as config.json: defaults, and what would be run wrongly."""

import math
from typing import Any

import pytest

from edgert import models
from edgert.config import ConfigReader
from edgert.errors import ConfigError, UnsupportedModelError
from edgert.models.gguf_names import GgufHeader

METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.context_length": 128,
    "llama.embedding_length": 48,
    "llama.block_count": 2,
    "llama.feed_forward_length": 88,
    "llama.attention.head_count": 6,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.tokens": ["a"] * 90,
}
SHAPES: dict[str, tuple[int, ...]] = {"token_embd.weight": (100, 48), "output.weight": (100, 48)}
FACTORS = {
    "rope_freqs.weight": [1.0, 1.0, 2.5, 8.0],
    "rope_factors_short.weight": [1.0] * 4,
    "rope_factors_long.weight": [3.0] * 4,
}


def from_gguf(
    architecture: str = "llama", shapes: dict[str, tuple[int, ...]] = SHAPES, **changes: Any
) -> dict[str, Any]:
    """The rebuilt config.json; `changes` are keys of the architecture with _ for a dot."""
    renamed = {key.replace("llama.", f"{architecture}."): value for key, value in METADATA.items()}
    metadata = renamed | {f"{architecture}.{key}": value for key, value in changes.pop("keys", {}).items()} | changes
    header = GgufHeader(
        source="m.gguf",
        architecture=architecture,
        metadata=metadata,
        shapes=shapes,
        floats=lambda name: FACTORS[name],
    )
    config = models.get_gguf(architecture).gguf_config(header)
    models.get(config["model_type"]).read_config(ConfigReader(config, "m.gguf"))
    return config


def test_gguf_metadata_in_the_spelling_of_config_json() -> None:
    config = from_gguf(keys={"rope.freq_base": 5e5})
    expected = {
        "model_type": "llama",
        "vocab_size": 100,
        "hidden_size": 48,
        "intermediate_size": 88,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "head_dim": 8,
        "rope_theta": 5e5,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "architectures": ["LlamaForCausalLM"],
    }
    assert config == expected


def test_gguf_config_follows_the_tensors_that_are_there() -> None:
    shapes = {"token_embd.weight": (77, 48), "blk.0.attn_q.bias": (48,), "blk.0.ffn_up.bias": (88,)}
    config = from_gguf(shapes=shapes)
    assert (config["vocab_size"], config["tie_word_embeddings"]) == (77, True)
    assert (config["attention_bias"], config["mlp_bias"]) == (True, True)
    assert from_gguf(shapes={"output.weight": (90, 48)})["vocab_size"] == 90
    assert from_gguf(shapes={"output.weight": (90, 48)}, keys={"vocab_size": 95})["vocab_size"] == 95
    with pytest.raises(ConfigError, match=r"tokenizer\.ggml\.tokens: found 7, expected a list of strings"):
        from_gguf(shapes={}, **{"tokenizer.ggml.tokens": 7})


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, None),
        ({"rope.scaling.type": "none"}, None),
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}, {"rope_type": "linear", "factor": 2.0}),
        ({"rope.scale_linear": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        (
            {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 4.0,
                "rope.scaling.original_context_length": 32,
                "rope.scaling.yarn_beta_fast": 24.0,
            },
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 24.0},
        ),
        (
            {
                "rope.scaling.type": "longrope",
                "rope.scaling.original_context_length": 32,
                "rope.scaling.attn_factor": 1.2,
            },
            {
                "rope_type": "longrope",
                "short_factor": [1.0] * 4,
                "long_factor": [3.0] * 4,
                "original_max_position_embeddings": 32,
                "attention_factor": 1.2,
            },
        ),
    ],
)
def test_gguf_rope_scaling(keys: dict[str, Any], expected: dict[str, Any] | None) -> None:
    assert from_gguf(keys=keys).get("rope_scaling") == expected


def test_gguf_frequency_factors_are_a_longrope_of_one_list() -> None:
    scaling = from_gguf(shapes=SHAPES | {"rope_freqs.weight": (4,)})["rope_scaling"]
    assert scaling["short_factor"] == scaling["long_factor"] == [1.0, 1.0, 2.5, 8.0]
    assert scaling["attention_factor"] == 1.0


def test_gguf_end_tokens_are_joined() -> None:
    config = from_gguf(
        **{
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 7,
            "tokenizer.ggml.eot_token_id": 5,
            "tokenizer.ggml.eom_token_id": 7,
        }
    )
    assert (config["bos_token_id"], config["eos_token_id"]) == (1, [5, 7])


def test_gguf_calls_mistral_and_mixtral_llama() -> None:
    window = {"attention.sliding_window": 16}
    experts = {"expert_count": 4, "expert_used_count": 2}
    assert from_gguf()["model_type"] == "llama"
    assert from_gguf(keys={"attention.sliding_window": 0})["model_type"] == "llama"
    mistral, mixtral, both = (from_gguf(keys=keys) for keys in (window, experts, window | experts))
    assert (mistral["model_type"], mistral["sliding_window"]) == ("mistral", 16)
    assert (mixtral["model_type"], mixtral["sliding_window"], mixtral["num_local_experts"]) == ("mixtral", None, 4)
    assert (both["model_type"], both["sliding_window"], both["num_experts_per_tok"]) == ("mixtral", 16, 2)


def test_gguf_of_phi3() -> None:
    keys = {"attention.sliding_window": 16, "rope.dimension_count": 6, "rope.scaling.original_context_length": 32}
    config = from_gguf("phi3", keys=keys)
    assert (config["sliding_window"], config["partial_rotary_factor"]) == (16, 0.75)
    with pytest.raises(ConfigError, match=r"rope\.dimension_count: found 9"):
        from_gguf("phi3", keys={"rope.dimension_count": 9})


def test_gguf_calls_olmo3_olmo2() -> None:
    """llama.cpp's window for olmo2: every fourth layer has none, unless there is a flag for each layer."""
    assert from_gguf("olmo2")["model_type"] == "olmo2"
    config = from_gguf("olmo2", keys={"attention.sliding_window": 16})
    assert (config["model_type"], config["sliding_window"], "layer_types" in config) == ("olmo3", 16, False)
    flags = {"attention.sliding_window": 16, "attention.sliding_window_pattern": [False, True]}
    assert from_gguf("olmo2", keys=flags)["layer_types"] == ["full_attention", "sliding_attention"]
    with pytest.raises(UnsupportedModelError, match="sliding_window_pattern is 6, edgert runs 4"):
        from_gguf("olmo2", keys=flags | {"attention.sliding_window_pattern": 6})
    with pytest.raises(ConfigError, match="layer_types: found a list of 1, expected a list of 2"):
        from_gguf("olmo2", keys=flags | {"attention.sliding_window_pattern": [True]})


def test_gguf_of_granite() -> None:
    scales = {"embedding_scale": 12.0, "attention.scale": 0.5, "residual_scale": 0.25, "logit_scale": 8.0}
    names = ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling")
    config = from_gguf("granite", keys=scales)
    assert [config[name] for name in names] == [12.0, 0.5, 0.25, 8.0]
    for keys in ({}, dict.fromkeys(scales, 0.0)):  # nothing is scaled, and scores are as everywhere
        config = from_gguf("granite", keys=keys)
        assert [config[name] for name in names] == [1.0, 1 / math.sqrt(8), 1.0, 1.0]
    with pytest.raises(UnsupportedModelError, match=r"rope\.scaling\.finetuned is False"):
        from_gguf("granite", keys={"rope.scaling.finetuned": False})


def test_gguf_of_gemma() -> None:
    config = from_gguf("gemma2")
    assert (config["sliding_window"], config["norm_weight_offset"], config["query_pre_attn_scalar"]) == (4096, 0.0, 8)
    assert (config["attn_logit_softcapping"], config["final_logit_softcapping"]) == (50.0, 30.0)
    keys = {"attn_logit_softcapping": 0.0, "final_logit_softcapping": 20.0, "attention.sliding_window": 16}
    config = from_gguf("gemma2", keys=keys)
    assert (config["attn_logit_softcapping"], config["final_logit_softcapping"]) == (None, 20.0)
    assert config["sliding_window"] == 16
    with pytest.raises(UnsupportedModelError, match="sliding_window_pattern is 3"):
        from_gguf("gemma2", keys={"attention.sliding_window_pattern": 3})
    keys = {"attention.sliding_window": 16, "rope.freq_base": 1e6, "attention.key_length": 16}
    config = from_gguf("gemma3", keys=keys)
    assert (config["model_type"], config["sliding_window"]) == ("gemma3_text", 16)
    assert "sliding_window_pattern" not in config and "layer_types" not in config
    assert (config["rope_theta"], config["rope_local_base_freq"], config["query_pre_attn_scalar"]) == (1e6, 1e4, 16)
    assert from_gguf("gemma3", keys=keys | {"rope.freq_base_swa": 5e3})["rope_local_base_freq"] == 5e3
    assert from_gguf("gemma3")["sliding_window_pattern"] == 1  # no window: every layer is a full one
    # The models of 27B take the width of a head's share of the hidden state: 46 and 62 layers.
    wide = {"attention.key_length": 16, "attention.sliding_window": 16}
    assert from_gguf("gemma2", keys=wide | {"block_count": 46})["query_pre_attn_scalar"] == 8
    assert from_gguf("gemma3", keys=wide | {"block_count": 62})["query_pre_attn_scalar"] == 8
    with pytest.raises(UnsupportedModelError, match=r"attn_logit_softcapping: found 50\.0"):
        from_gguf("gemma3", keys={"attn_logit_softcapping": 50.0})


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "smollm3"])
def test_gguf_windows_that_an_architecture_does_not_read(architecture: str) -> None:
    with pytest.raises(UnsupportedModelError, match="sliding_window: found 512"):
        from_gguf(architecture, keys={"attention.sliding_window": 512})


def test_gguf_experts() -> None:
    keys = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 40, "attention.key_length": 12}
    config = from_gguf("qwen3moe", shapes=SHAPES | {"blk.1.ffn_gate_inp.weight": (4, 48)}, keys=keys)
    assert (config["num_experts"], config["norm_topk_prob"], config["mlp_only_layers"]) == (4, True, [0])
    assert config["head_dim"] == 12
    keys |= {"expert_weights_norm": False}
    assert from_gguf("qwen3moe", keys=keys)["norm_topk_prob"] is False


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"expert_count": 8, "expert_used_count": 2, "expert_weights_norm": False}, "expert_weights_norm is False"),
        ({"attention.value_length": 16}, "attention.value_length: found 16, edgert runs 8"),
        ({"rope.dimension_count": 4}, "rope.dimension_count: found 4, edgert runs 8"),
        ({"attention.head_count_kv": [2, 1]}, "found layers of different sizes"),
        ({"attention.scale": 0.3}, "attention.scale: found 0.3"),
        ({"rope.freq_base_swa": 5e3}, "rope.freq_base_swa is 5000.0, edgert runs 10000.0"),
        ({"logit_scale": 0.5}, "logit_scale: found 0.5"),
        ({"attention.clamp_kqv": 8.0}, "clamp_kqv: found 8.0"),
        ({"rope.scaling.type": "odd"}, "rope.scaling.type: found 'odd'"),
        ({"rope.scaling.type": "yarn", "rope.scaling.yarn_log_multiplier": 0.1}, "yarn_log_multiplier: found 0.1"),
        ({"rope.scaling.type": "yarn", "rope.scaling.attn_factor": 0.5}, "attn_factor: found 0.5"),
    ],
)
def test_gguf_metadata_that_would_be_run_wrongly(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        from_gguf(keys=keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"block_count": None}, "m.gguf: llama: block_count: found nothing"),
        ({"block_count": "2"}, "block_count: found '2'"),
        ({"attention.head_count": 0}, "attention.head_count: found 0"),
        ({"attention.head_count": None}, "attention.head_count: found None"),
        ({"attention.head_count": []}, "attention.head_count: found None"),
        ({"attention.layer_norm_rms_epsilon": float("nan")}, "layer_norm_rms_epsilon: found nan"),
        ({"context_length": 2**40}, "context_length: found 1099511627776"),
    ],
)
def test_gguf_metadata_that_is_impossible(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_gguf(keys=keys)


def test_one_value_for_every_layer_is_one_value() -> None:
    assert from_gguf(keys={"attention.head_count_kv": [2, 2]})["num_key_value_heads"] == 2


def test_names_that_gguf_does_not_have() -> None:
    names = models.get("llama").gguf
    for name in ("model.layers.0.self_attn.sinks", "model.layers.x.mlp.up_proj.weight", "odd.weight", "weight", ""):
        assert names.place(name, 6, 2) is None
