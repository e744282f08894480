"""Granite: Llama whose embedding, scores, residuals and logits are scaled (transformers' modeling_granite)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from edgert.config import ConfigReader
from edgert.graph import Graph, Value
from edgert.models.blocks import MAX_WIDTH, DecoderConfig, attention, embed, gated_mlp, head, read_decoder, read_scale
from edgert.models.gguf_names import GgufHeader, GgufNames, decoder_config
from edgert.models.registry import register

# The keys of GGUF for the four factors; there 0 means that nothing is scaled.
SCALES = {
    "embedding_multiplier": "embedding_scale",
    "attention_multiplier": "attention.scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GraniteConfig:
    """config.json of a Granite model. The logits are divided by logits_scaling."""

    decoder: DecoderConfig
    intermediate_size: int
    mlp_bias: bool
    embedding_multiplier: float
    attention_multiplier: float
    residual_multiplier: float
    logits_scaling: float


def read_config(r: ConfigReader) -> GraniteConfig:
    """Reads config.json. Raises ConfigError, UnsupportedModelError."""
    r.require("hidden_act", ("silu", "swish"), default="silu")
    scales = {name: read_scale(r, name, 1.0) for name in SCALES}
    return GraniteConfig(
        decoder=read_decoder(r),
        intermediate_size=r.integer("intermediate_size", maximum=MAX_WIDTH),
        mlp_bias=r.flag("mlp_bias", default=False),
        **scales,
    )


def gguf_config(header: GgufHeader) -> dict[str, Any]:
    """config.json from GGUF metadata."""
    r = header.section()
    r.require("rope.scaling.finetuned", (True,), default=True)  # false: no rotary positions at all
    config = decoder_config(header, "granite", known=tuple(SCALES.values())) | {
        "architectures": ["GraniteForCausalLM"],
        "hidden_act": "silu",
        "intermediate_size": r.integer("feed_forward_length"),
        "mlp_bias": "blk.0.ffn_up.bias" in header.shapes,
    }
    neutral = {"attention_multiplier": 1.0 / math.sqrt(config["head_dim"])}
    return config | {ours: r.number(key, default=0.0) or neutral.get(ours, 1.0) for ours, key in SCALES.items()}


@register("granite", read_config=read_config, gguf=GgufNames("granite", permutes_rope=True), gguf_config=gguf_config)
def build(g: Graph, c: GraniteConfig) -> Value:
    """Pre-norm attention and SwiGLU in every layer, scaled before they are added."""
    d = c.decoder
    h = g.scale(embed(g, d), c.embedding_multiplier)
    for i in range(d.num_hidden_layers):
        p = f"model.layers.{i}"
        x = g.rms_norm(h, f"{p}.input_layernorm", d.rms_norm_eps)
        h = h + g.scale(attention(g, d, i, x, scale=c.attention_multiplier), c.residual_multiplier)
        x = g.rms_norm(h, f"{p}.post_attention_layernorm", d.rms_norm_eps)
        mixed = gated_mlp(g, x, f"{p}.mlp", c.intermediate_size, bias=c.mlp_bias)
        h = h + g.scale(mixed, c.residual_multiplier)
    return g.scale(head(g, d, h), 1.0 / c.logits_scaling)
