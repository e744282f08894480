"""config.json and GGUF metadata of each architecture: spellings, defaults, and options that would be run wrongly."""

import math
import re
from typing import Any

import pytest

from edgert import models
from edgert.config import ConfigReader
from edgert.errors import ConfigError, UnsupportedModelError
from edgert.graph import Graph
from edgert.models.gguf_names import GgufHeader

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 48,
    "intermediate_size": 88,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}
QWEN3_MOE = LLAMA | {
    "model_type": "qwen3_moe",
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 40,
}


def read(**changes: Any) -> Any:
    values = LLAMA | changes
    return models.get(values["model_type"]).read_config(ConfigReader(values, "config.json"))


def scaling(**changes: Any) -> dict[str, Any]:
    return dict(read(**changes).decoder.rope.scaling)


def test_an_unknown_architecture_is_named_beside_the_known_ones() -> None:
    with pytest.raises(
        UnsupportedModelError, match=r"found 'gpt_oss', expected one of arcee, llama, mistral, .*qwen3, qwen3_moe"
    ):
        models.get("gpt_oss")
    with pytest.raises(
        UnsupportedModelError, match=r"found 'falcon', expected one of arcee, llama, olmo2, .*qwen3, qwen3moe"
    ):
        models.get_gguf("falcon")


def test_defaults() -> None:
    decoder = read().decoder
    assert (decoder.head_dim, decoder.tie_word_embeddings, decoder.attention_bias) == (8, False, False)
    assert (decoder.rope.theta, dict(decoder.rope.scaling)) == (10000.0, {})
    assert read(model_type="qwen3").decoder.head_dim == 128
    values = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    config = models.get("llama").read_config(ConfigReader(values, "config.json"))
    assert config.decoder.num_key_value_heads == 6


@pytest.mark.parametrize(
    "new",
    [
        {"rope_type": "default", "rope_theta": 5e5},
        {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4},
        {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 1e6},
        {"rope_type": "yarn", "factor": 4.0, "beta_fast": 24, "mscale": 0.7, "truncate": False, "rope_theta": 1e6},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1, "high_freq_factor": 4.0, "rope_theta": 5e5},
        {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "rope_theta": 1e4},
    ],
)
def test_rope_in_the_spelling_of_transformers_4_and_5(new: dict[str, Any]) -> None:
    old = dict(new)
    theta = old.pop("rope_theta")
    older = dict(old)
    older["type"] = older.pop("rope_type")
    specs = [
        read(rope_parameters=new).decoder.rope,
        read(rope_theta=theta, rope_scaling=old).decoder.rope,
        read(rope_theta=theta, rope_scaling=older).decoder.rope,
        read(rope_theta=theta, rope_scaling=old, rope_parameters=None).decoder.rope,
    ]
    assert specs[0].theta == theta
    assert specs.count(specs[0]) == 4


def test_derived_rope_values_are_filled_in() -> None:
    yarn = scaling(rope_scaling={"rope_type": "yarn", "original_max_position_embeddings": 32})
    assert (yarn["factor"], yarn["original_max_position_embeddings"]) == (4.0, 32)
    assert scaling(rope_scaling={"rope_type": "yarn", "factor": 2.0})["original_max_position_embeddings"] == 128
    lists = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    found = scaling(rope_scaling=lists, original_max_position_embeddings=32)
    assert found["original_max_position_embeddings"] == 32
    assert found["attention_factor"] == pytest.approx(math.sqrt(1 + math.log(4) / math.log(32)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu', edgert runs 'silu' or 'swish'"),
        ({"model_type": "arcee", "hidden_act": "silu"}, "hidden_act is 'silu', edgert runs 'relu2'"),
        ({"rope_scaling": {"rope_type": "mrope"}}, "rope_type: found 'mrope', expected one of default, linear"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}}, "partial_rotary_factor is 0.25"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "found settings for each kind of layer"),
        ({"quantization_config": {"quant_method": "gptq"}}, "found a quantised checkpoint"),
        ({"model_type": "qwen3", "layer_types": ["full_attention", "linear_attention"]}, "found 'linear_attention'"),
        ({"model_type": "qwen2", "attention_bias": True}, "attention_bias is True"),
        ({"model_type": "phi3", "attention_bias": True}, "attention_bias is True"),
        ({"model_type": "phi3", "hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"model_type": "olmo2", "partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"model_type": "mistral", "layer_types": ["full_attention"] * 2}, "layer_types: found 'full_attention'"),
        ({"model_type": "smollm3", "layer_types": ["full_attention", "odd"]}, "layer_types: found 'odd'"),
    ],
)
def test_what_would_be_run_wrongly_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        read(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "hidden_size: found nothing"),
        ({"hidden_size": 2**40}, "hidden_size: found 1099511627776"),
        ({"num_hidden_layers": 2**20}, "num_hidden_layers: found 1048576, expected a whole number in 1..1024"),
        ({"num_attention_heads": 0}, "num_attention_heads: found 0"),
        ({"num_attention_heads": 7}, "num_key_value_heads: found 2, expected a divisor"),
        ({"num_attention_heads": 10}, "num_attention_heads: found 10, expected a divisor of hidden_size"),
        ({"num_key_value_heads": 4}, "num_key_value_heads: found 4, expected a divisor of num_attention_heads"),
        ({"head_dim": 7}, "head_dim: found 7, expected an even number"),
        ({"rms_norm_eps": 0}, "rms_norm_eps: found 0"),
        ({"vocab_size": -1}, "vocab_size: found -1"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings: found 1, expected true or false"),
        ({"rope_theta": -1.0}, "rope_theta: found -1.0"),
        ({"rope_scaling": "yarn"}, "rope_scaling: found 'yarn', expected an object"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling: factor: found nothing"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor: found nothing"),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1, "high_freq_factor": 1}},
            "another number than low_freq_factor",
        ),
        (
            {"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0] * 3, "long_factor": [1.0] * 4}},
            "short_factor: found a list of 3, expected a list of 4 numbers",
        ),
        ({"model_type": "qwen3", "layer_types": ["full_attention"]}, "layer_types: found a list of 1"),
        ({"model_type": "smollm3", "no_rope_layers": [1]}, "no_rope_layers: found a list of 1, expected a list of 2"),
        ({"model_type": "smollm3", "no_rope_layers": [1, 2]}, "no_rope_layers: found 2"),
        ({"model_type": "phi3", "partial_rotary_factor": 0.4}, "partial_rotary_factor: found 0.4, expected an even"),
        ({"model_type": "phi3", "partial_rotary_factor": 1.5}, "partial_rotary_factor: found 1.5"),
        ({"model_type": "mixtral", "num_experts_per_tok": 9}, "num_experts_per_tok: found 9, expected .* in 1..8"),
        (QWEN3_MOE | {"num_experts_per_tok": 5}, "num_experts_per_tok: found 5, expected a whole number in 1..4"),
        (QWEN3_MOE | {"num_experts": 5000}, "num_experts: found 5000"),
        (
            QWEN3_MOE | {"num_experts": 1000, "num_hidden_layers": 1000},
            "num_experts: found 1000, expected at most 65536",
        ),
        (QWEN3_MOE | {"mlp_only_layers": ["x"]}, "mlp_only_layers: found 'x'"),
    ],
)
def test_impossible_values(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(**changes)


def test_which_layers_have_experts() -> None:
    layers = QWEN3_MOE | {"num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": [3]}
    assert read(**layers).has_experts == (False, True, False, False, False, True)
    assert read(**(QWEN3_MOE | {"num_local_experts": 9, "num_experts": None})).num_experts == 9


def test_windows() -> None:
    qwen3 = {"model_type": "qwen3", "sliding_window": 16}
    assert read(**qwen3).windows == (0, 0)
    assert read(**qwen3, use_sliding_window=True, max_window_layers=1).windows == (0, 16)
    types = ["sliding_attention", "full_attention"]
    assert read(**qwen3, use_sliding_window=True, layer_types=types).windows == (16, 0)
    assert read(**(QWEN3_MOE | {"use_sliding_window": True, "sliding_window": 16})).window == 16


def test_windows_that_every_layer_has() -> None:
    assert read(model_type="mistral").window == 4096
    assert read(model_type="mistral", sliding_window=None).window == 0
    assert read(model_type="mistral", sliding_window=16, layer_types=["sliding_attention"] * 2).window == 16
    for model_type in ("mixtral", "phi3"):
        assert read(model_type=model_type).window == 0
        assert read(model_type=model_type, sliding_window=16).window == 16


def test_qwen2_windows() -> None:
    qwen2 = {"model_type": "qwen2", "sliding_window": 16, "max_window_layers": 1}
    assert read(**qwen2).windows == (0, 0)
    assert read(**qwen2, use_sliding_window=True).windows == (0, 16)
    assert read(**(qwen2 | {"use_sliding_window": True, "sliding_window": None})).windows == (0, 0)


def test_layers_without_rope() -> None:
    smollm3 = {"model_type": "smollm3", "num_hidden_layers": 4, "sliding_window": 16}
    assert read(**smollm3).has_rope == (True, True, True, False)
    assert read(**smollm3, no_rope_layer_interval=2).has_rope == (True, False, True, False)
    assert read(model_type="smollm3", use_sliding_window=True, no_rope_layers=[0, 1]).windows == (0, 0)
    config = read(**smollm3, no_rope_layers=[0, 1, 1, 1, 0], use_sliding_window=True)
    assert (config.has_rope, config.windows) == ((False, True, True, True), (16, 0, 0, 0))
    assert (config.decoder.tie_word_embeddings, config.decoder.rope.theta) == (True, 2e6)


def test_phi3_rope_in_its_older_spellings() -> None:
    lists = {"short_factor": [1.0] * 3, "long_factor": [2.0] * 3}
    common = {"model_type": "phi3", "original_max_position_embeddings": 32}
    new = lists | {"rope_type": "longrope", "partial_rotary_factor": 0.75, "rope_theta": 1e4}
    spec = read(**common, rope_parameters=new).decoder.rope
    assert (spec.rotary_dim, spec.head_dim, spec.scaling["rope_type"]) == (6, 8, "longrope")
    for kind in ("su", "yarn", "longrope"):
        old = lists | {"type": kind}
        assert read(**common, rope_scaling=old, rope_theta=1e4, partial_rotary_factor=0.75).decoder.rope == spec


def test_defaults_are_those_of_the_architecture() -> None:
    short = {key: value for key, value in LLAMA.items() if key not in ("rms_norm_eps", "num_key_value_heads")}
    for model_type, eps, theta in (("mixtral", 1e-5, 1e6), ("olmo2", 1e-5, 1e4), ("phi3", 1e-5, 1e4)):
        values = short | {"model_type": model_type, "num_attention_heads": 8}
        decoder = models.get(model_type).read_config(ConfigReader(values, "config.json")).decoder
        assert (decoder.rms_norm_eps, decoder.rope.theta, decoder.num_key_value_heads) == (eps, theta, 8)


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
    expected = LLAMA | {
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


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "olmo2", "smollm3"])
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


@pytest.mark.parametrize("model_type", list(models.ARCHITECTURES))
def test_every_weight_of_a_graph_has_one_gguf_place(model_type: str) -> None:
    has_bias = model_type not in ("qwen2", "phi3")
    changes = QWEN3_MOE | {"num_local_experts": 4, "model_type": model_type, "attention_bias": has_bias}
    architecture = models.get(model_type)
    graph = Graph()
    graph.output(architecture.build(graph, read(**changes)))
    places = [architecture.gguf.place(name, 6, 2) for name in graph.weights]
    assert None not in places
    assert len(set(places)) == len(places)
    permuted = {place.permuted_heads for place in places if place and re.search(r"attn_q(kv)?\.weight", place.tensor)}
    assert permuted == ({6} if architecture.gguf.permutes_rope else {0})


def test_names_that_gguf_does_not_have() -> None:
    names = models.get("llama").gguf
    for name in ("model.layers.0.self_attn.sinks", "model.layers.x.mlp.up_proj.weight", "odd.weight", "weight", ""):
        assert names.place(name, 6, 2) is None
