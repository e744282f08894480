"""config.json of each architecture: spellings, defaults, and options that would be run wrongly."""

import math
import re
from typing import Any

import pytest

from edgert import models
from edgert.config import ConfigReader
from edgert.errors import ConfigError, UnsupportedModelError
from edgert.graph import Graph

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
        UnsupportedModelError,
        match=r"found 'gpt_oss', expected one of arcee, gemma2, .*llama, .*qwen3, qwen3_moe",
    ):
        models.get("gpt_oss")
    with pytest.raises(
        UnsupportedModelError, match=r"found 'falcon', expected one of arcee, gemma2, .*llama, olmo2, .*qwen3, qwen3moe"
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
        ({"model_type": "gemma2", "layer_types": ["full_attention", "odd"]}, "layer_types: found 'odd'"),
        ({"model_type": "gemma2", "hidden_activation": "gelu"}, "hidden_activation is 'gelu'"),
        ({"model_type": "gemma2", "use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
        ({"model_type": "gemma3_text", "attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0"),
        (
            {"model_type": "gemma3_text", "rope_parameters": {"sliding_attention": {"rope_type": "odd"}}},
            "rope_type: found 'odd'",
        ),
        ({"model_type": "granite", "hidden_act": "gelu"}, "hidden_act is 'gelu'"),
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
        (
            {"model_type": "granite", "logits_scaling": 0},
            "logits_scaling: found 0, expected a finite number above 1e-09",
        ),
        ({"model_type": "granite", "embedding_multiplier": 1e300}, "embedding_multiplier: found 1e[+]300"),
        ({"model_type": "gemma2", "norm_weight_offset": 2.0}, "norm_weight_offset: found 2.0"),
        ({"model_type": "gemma2", "query_pre_attn_scalar": -1}, "query_pre_attn_scalar: found -1"),
        ({"model_type": "gemma2", "attn_logit_softcapping": 0.0}, "attn_logit_softcapping: found 0.0"),
        ({"model_type": "gemma3_text", "sliding_window_pattern": 0}, "sliding_window_pattern: found 0"),
        ({"model_type": "gemma3_text", "rope_local_base_freq": -1.0}, "rope_local_base_freq: found -1.0"),
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


def test_gemma_defaults_and_what_null_means() -> None:
    gemma2 = read(model_type="gemma2", num_hidden_layers=3)
    assert (gemma2.is_sliding, gemma2.sliding_window) == ((True, False, True), 4096)
    assert (gemma2.attn_logit_softcapping, gemma2.final_logit_softcapping) == (50.0, 30.0)
    assert (gemma2.query_pre_attn_scalar, gemma2.norm_weight_offset, gemma2.local_rope) == (256.0, 1.0, None)
    assert (gemma2.decoder.head_dim, gemma2.decoder.tie_word_embeddings) == (256, True)
    none = {"attn_logit_softcapping": None, "final_logit_softcapping": None, "sliding_window": None}
    plain = read(model_type="gemma2", **none)
    assert (plain.attn_logit_softcapping, plain.final_logit_softcapping, plain.sliding_window) == (0.0, 0.0, 0)
    gemma3 = read(model_type="gemma3_text", num_hidden_layers=7)
    assert gemma3.is_sliding == (True,) * 5 + (False, True)
    assert (gemma3.attn_logit_softcapping, gemma3.final_logit_softcapping, gemma3.has_qk_norm) == (0.0, 0.0, True)
    assert read(model_type="gemma3_text", sliding_window_pattern=2).is_sliding == (True, False)


def test_olmo3_defaults() -> None:
    config = read(model_type="olmo3", num_hidden_layers=5)
    assert (config.is_sliding, config.sliding_window) == ((True, True, True, False, True), 4096)
    assert (config.decoder.rope.theta, config.local_rope.theta) == (5e5, 5e5)
    yarn = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32}
    decoder, local = (c := read(model_type="olmo3", rope_theta=1e4, rope_scaling=yarn)).decoder, c.local_rope
    assert (decoder.rope.scaling["rope_type"], decoder.rope.theta) == ("yarn", 1e4)
    assert (dict(local.scaling), local.theta) == ({}, 1e4)


def test_gemma3_rope_of_each_kind_of_layer() -> None:
    def thetas(**changes: Any) -> tuple[float, float]:
        config = read(model_type="gemma3_text", **changes)
        return config.decoder.rope.theta, config.local_rope.theta

    assert thetas() == (1e6, 1e4)
    assert thetas(rope_theta=5e5, rope_local_base_freq=2e4) == (5e5, 2e4)
    linear = {"rope_type": "linear", "factor": 8.0}
    kinds = {"full_attention": linear | {"rope_theta": 3e5}, "sliding_attention": {"rope_type": "default"}}
    assert thetas(rope_parameters=kinds) == (3e5, 1e4)
    for changes in ({"rope_parameters": kinds}, {"rope_scaling": linear, "rope_theta": 3e5}):
        config = read(model_type="gemma3_text", **changes)
        assert (dict(config.decoder.rope.scaling), dict(config.local_rope.scaling)) == (linear, {})
    assert thetas(rope_parameters={"full_attention": linear}) == (1e6, 1e4)


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
