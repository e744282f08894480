"""Arcee (AFM): Llama with a squared-ReLU MLP without a gate (transformers' modeling_arcee)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgert.config import ConfigReader
from edgert.graph import Graph, Value
from edgert.models.blocks import MAX_WIDTH, DecoderConfig, attention, embed, head, read_decoder
from edgert.models.gguf_names import GgufHeader, GgufNames, decoder_config
from edgert.models.registry import register


@dataclass(frozen=True, slots=True, kw_only=True)
class ArceeConfig:
    """config.json of an Arcee model."""

    decoder: DecoderConfig
    intermediate_size: int
    mlp_bias: bool


def read_config(r: ConfigReader) -> ArceeConfig:
    """Reads config.json. Raises ConfigError, UnsupportedModelError."""
    r.require("hidden_act", ("relu2",), default="relu2")
    return ArceeConfig(
        decoder=read_decoder(r),
        intermediate_size=r.integer("intermediate_size", maximum=MAX_WIDTH),
        mlp_bias=r.flag("mlp_bias", default=False),
    )


def gguf_config(header: GgufHeader) -> dict[str, Any]:
    """config.json from GGUF metadata."""
    return decoder_config(header, "arcee") | {
        "architectures": ["ArceeForCausalLM"],
        "hidden_act": "relu2",
        "intermediate_size": header.section().integer("feed_forward_length"),
        "mlp_bias": "blk.0.ffn_up.bias" in header.shapes,
    }


@register("arcee", read_config=read_config, gguf=GgufNames("arcee", permutes_rope=True), gguf_config=gguf_config)
def build(g: Graph, c: ArceeConfig) -> Value:
    """Pre-norm attention, then down(relu(up x)^2), in every layer."""
    d = c.decoder
    h = embed(g, d)
    for i in range(d.num_hidden_layers):
        p = f"model.layers.{i}"
        h = h + attention(g, d, i, g.rms_norm(h, f"{p}.input_layernorm", d.rms_norm_eps))
        x = g.rms_norm(h, f"{p}.post_attention_layernorm", d.rms_norm_eps)
        up = g.linear(x, f"{p}.mlp.up_proj", c.intermediate_size, bias=c.mlp_bias)
        h = h + g.linear(g.relu2(up), f"{p}.mlp.down_proj", d.hidden_size, bias=c.mlp_bias)
    return head(g, d, h)
