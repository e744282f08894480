"""Gemma 2: norms before and after attention and MLP, soft caps, alternate windows (transformers' modeling_gemma2)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from edgert.config import ConfigReader
from edgert.graph import Graph, RopeSpec, Value
from edgert.models.blocks import (
    MAX_WIDTH,
    DecoderConfig,
    attention,
    embed,
    gated_mlp,
    head,
    read_decoder,
    read_scale,
    read_sliding_layers,
    read_window,
)
from edgert.models.gguf_names import GgufHeader, GgufNames, decoder_config, window_layers
from edgert.models.registry import register

DEFAULTS = {
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
NAMES = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
LAYERS_OF_27B = 46


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmaConfig:
    """config.json of a Gemma 2 or 3 model.

    is_sliding: of each layer; those see sliding_window positions (0: all) and have rotary positions of their own if
    local_rope is given. A soft cap of 0 is none. norm_weight_offset: added to the weights of norms; GGUF files hold
    the sums and say 0. has_qk_norm: each head of q and k is normed.
    """

    decoder: DecoderConfig
    intermediate_size: int
    is_sliding: tuple[bool, ...]
    sliding_window: int
    query_pre_attn_scalar: float
    attn_logit_softcapping: float
    final_logit_softcapping: float
    norm_weight_offset: float
    has_qk_norm: bool = False
    local_rope: RopeSpec | None = None


def read_soft_cap(r: ConfigReader, key: str, default: float) -> float:
    """A soft cap: null means none (0), an absent one `default`."""
    return read_scale(r, key, 0.0 if key in r.values else default)


def read_config(r: ConfigReader) -> GemmaConfig:
    """Reads config.json. Raises ConfigError, UnsupportedModelError."""
    r.require("hidden_activation", ("gelu_pytorch_tanh",), default="gelu_pytorch_tanh")
    r.require("use_bidirectional_attention", (False,), default=False)
    decoder = read_decoder(r.with_defaults(DEFAULTS))
    layers = decoder.num_hidden_layers
    return GemmaConfig(
        decoder=decoder,
        intermediate_size=r.integer("intermediate_size", maximum=MAX_WIDTH),
        is_sliding=read_sliding_layers(r, layers, tuple(i % 2 == 0 for i in range(layers))),
        sliding_window=read_window(r, default=4096),
        query_pre_attn_scalar=read_scale(r, "query_pre_attn_scalar", 256.0),
        attn_logit_softcapping=read_soft_cap(r, "attn_logit_softcapping", 50.0),
        final_logit_softcapping=read_soft_cap(r, "final_logit_softcapping", 30.0),
        norm_weight_offset=r.number("norm_weight_offset", default=1.0, above=-1e-30, maximum=1.0),
    )


def gguf_gemma_config(
    header: GgufHeader, model_type: str, known: tuple[str, ...], layers_of_27b: int
) -> dict[str, Any]:
    """What Gemma 2 and 3 share of config.json from GGUF metadata.

    The scale of the scores has no key: llama.cpp takes head_dim for it, and the width of a head's share of the hidden
    state in the models of 27B, which it knows by their number of layers.
    """
    r = header.section()
    config = decoder_config(header, model_type, known=("attention.sliding_window", "final_logit_softcapping", *known))
    is_27b = config["num_hidden_layers"] == layers_of_27b
    share = config["hidden_size"] // config["num_attention_heads"]
    return config | {
        "hidden_activation": "gelu_pytorch_tanh",
        "intermediate_size": r.integer("feed_forward_length"),
        "query_pre_attn_scalar": share if is_27b else config["head_dim"],
        "norm_weight_offset": 0.0,
    }


def gguf_config(header: GgufHeader) -> dict[str, Any]:
    """config.json from GGUF metadata, with llama.cpp's defaults."""
    r = header.section()
    config = gguf_gemma_config(header, "gemma2", ("attn_logit_softcapping",), LAYERS_OF_27B) | window_layers(r, 2)
    return config | {
        "architectures": ["Gemma2ForCausalLM"],
        "sliding_window": r.integer("attention.sliding_window", default=4096, minimum=0) or None,
        "attn_logit_softcapping": r.number("attn_logit_softcapping", default=50.0) or None,
        "final_logit_softcapping": r.number("final_logit_softcapping", default=30.0) or None,
    }


@register("gemma2", read_config=read_config, gguf=GgufNames("gemma2", layer=NAMES), gguf_config=gguf_config)
def build(g: Graph, c: GemmaConfig) -> Value:
    """Attention, then GeGLU; each is normed before and after."""
    d = c.decoder
    # In float32, whatever the checkpoint's type: as transformers in float32 and llama.cpp do.
    h = g.scale(embed(g, d), math.sqrt(d.hidden_size))
    for i, is_sliding in enumerate(c.is_sliding):
        p = f"model.layers.{i}"
        x = _norm(g, c, h, f"{p}.input_layernorm")
        x = attention(
            g,
            replace(d, rope=c.local_rope) if c.local_rope and is_sliding else d,
            i,
            x,
            qk_norm="head" if c.has_qk_norm else "",
            norm_offset=c.norm_weight_offset,
            window=c.sliding_window if is_sliding else 0,
            scale=1.0 / math.sqrt(c.query_pre_attn_scalar),
            soft_cap=c.attn_logit_softcapping,
        )
        h = h + _norm(g, c, x, f"{p}.post_attention_layernorm")
        x = _norm(g, c, h, f"{p}.pre_feedforward_layernorm")
        x = gated_mlp(g, x, f"{p}.mlp", c.intermediate_size, act="gelu")
        h = h + _norm(g, c, x, f"{p}.post_feedforward_layernorm")
    return g.soft_cap(head(g, d, h, norm_offset=c.norm_weight_offset), c.final_logit_softcapping)


def _norm(g: Graph, c: GemmaConfig, x: Value, name: str) -> Value:
    return g.rms_norm(x, name, c.decoder.rms_norm_eps, weight_offset=c.norm_weight_offset)
