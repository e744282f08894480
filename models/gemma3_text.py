"""Gemma 3, text: Gemma 2 with normed q and k, two kinds of RoPE and no caps (transformers' modeling_gemma3)."""

from __future__ import annotations

from typing import Any

from edgert.config import ConfigReader
from edgert.graph import Graph, Value
from edgert.models import gemma2
from edgert.models.blocks import MAX_WIDTH, read_decoder, read_scale, read_sliding_layers, read_window
from edgert.models.gguf_names import GgufHeader, GgufNames, window_layers
from edgert.models.registry import register
from edgert.models.rope import read_rope, ropes_by_kind

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
    full, sliding = ropes_by_kind(r, theta=1e6, local_theta=1e4)
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


def gguf_config(header: GgufHeader) -> dict[str, Any]:
    """config.json from GGUF metadata, with llama.cpp's defaults; without a window every layer is a full one."""
    r = header.section()
    window = r.integer("attention.sliding_window", default=0, minimum=0)
    layers = window_layers(r, 6) if window else {"sliding_window_pattern": 1}
    return (
        gemma2.gguf_gemma_config(header, "gemma3_text", ("rope.freq_base_swa",), LAYERS_OF_27B)
        | layers
        | {
            "architectures": ["Gemma3ForCausalLM"],
            "sliding_window": window or None,
            "rope_local_base_freq": r.number("rope.freq_base_swa", default=1e4, above=0.0),
            "final_logit_softcapping": r.number("final_logit_softcapping", default=0.0) or None,
        }
    )


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
