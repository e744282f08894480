"""Gemma 3, text: Gemma 2 with normed q and k, two kinds of RoPE and no caps (transformers' modeling_gemma3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgert.config import ConfigReader
from edgert.graph import Graph, Value
from edgert.models import gemma2
from edgert.models.blocks import MAX_WIDTH, read_decoder, read_rope, read_scale, read_sliding_layers, read_window
from edgert.models.gguf_names import GgufHeader, GgufNames
from edgert.models.registry import register

DEFAULTS = {
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
}
LAYERS_OF_27B = 62


def read_config(r: ConfigReader) -> gemma2.GemmaConfig:
    """Reads config.json. Raises ConfigError, UnsupportedModelError."""
    r.require("hidden_activation", ("gelu_pytorch_tanh",), default="gelu_pytorch_tanh")
    r.require("use_bidirectional_attention", (False,), default=False)
    r.require("attn_logit_softcapping", (0,), default=0)
    r = r.with_defaults(DEFAULTS)
    full, sliding = _ropes(r)
    decoder = read_decoder(full)
    layers = decoder.num_hidden_layers
    period = r.integer("sliding_window_pattern", default=6)
    return gemma2.GemmaConfig(
        decoder=decoder,
        intermediate_size=r.integer("intermediate_size", maximum=MAX_WIDTH),
        is_sliding=read_sliding_layers(r, layers, tuple((i + 1) % period != 0 for i in range(layers))),
        sliding_window=read_window(r, default=4096),
        query_pre_attn_scalar=read_scale(r, "query_pre_attn_scalar", 256.0),
        attn_logit_softcapping=0.0,
        final_logit_softcapping=gemma2.read_soft_cap(r, "final_logit_softcapping", 0.0),
        norm_weight_offset=r.number("norm_weight_offset", default=1.0, above=-1e-30, maximum=1.0),
        has_qk_norm=True,
        local_rope=read_rope(sliding, decoder.head_dim, decoder.max_position_embeddings),
    )


def _ropes(r: ConfigReader) -> tuple[ConfigReader, ConfigReader]:
    """The configuration with the rotary positions of full and of sliding layers.

    transformers 5 has rope_parameters for each kind; in 4 rope_theta and rope_scaling are those of full layers, and
    rope_local_base_freq is the base of the others.
    """
    both = r.section("rope_parameters")
    by_kind = both.values if both and any(isinstance(v, Mapping) for v in both.values.values()) else None
    flat = {key: value for key, value in r.values.items() if key not in ("rope_parameters", "rope_scaling")}
    theta = r.number("rope_theta", default=1e6, above=0.0)
    local_theta = r.number("rope_local_base_freq", default=1e4, above=0.0)
    if by_kind is None:
        full = {"rope_parameters": both.values if both else None, "rope_scaling": r.values.get("rope_scaling")}
        sliding = None
    else:
        full, sliding = {"rope_parameters": by_kind.get("full_attention")}, by_kind.get("sliding_attention")
    return (
        ConfigReader(flat | full | {"rope_theta": theta}, r.source),
        ConfigReader(flat | {"rope_parameters": sliding, "rope_theta": local_theta}, r.source),
    )


def gguf_config(header: GgufHeader) -> dict[str, Any]:
    """config.json from GGUF metadata, with llama.cpp's defaults; without a window every layer is a full one."""
    r = header.section()
    window = r.integer("attention.sliding_window", default=0, minimum=0)
    return gemma2.gguf_gemma_config(header, "gemma3_text", (), LAYERS_OF_27B) | {
        "architectures": ["Gemma3ForCausalLM"],
        "sliding_window": window or None,
        "sliding_window_pattern": r.integer("attention.sliding_window_pattern", default=6) if window else 1,
        "rope_local_base_freq": r.number("rope.freq_base_swa", default=1e4, above=0.0),
        "final_logit_softcapping": r.number("final_logit_softcapping", default=0.0) or None,
    }


@register(
    "gemma3_text",
    read_config=read_config,
    gguf=GgufNames("gemma3", layer=gemma2.NAMES),
    gguf_config=gguf_config,
    text_of="gemma3",
)
def build(g: Graph, c: gemma2.GemmaConfig) -> Value:
    """The graph of Gemma 2, with normed q and k and two kinds of RoPE."""
    return gemma2.build(g, c)
