"""Qwen2 and Qwen2.5, dense: Llama with biases of q, k and v, optional sliding window (transformers' modeling_qwen2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgert.config import ConfigReader
from edgert.graph import Graph, Value
from edgert.models.blocks import (
    MAX_WIDTH,
    DecoderConfig,
    attention,
    embed,
    gated_mlp,
    head,
    read_decoder,
    read_windows_from_layer,
)
from edgert.models.gguf_names import GgufHeader, GgufNames, decoder_config
from edgert.models.registry import register

DEFAULTS = {"num_key_value_heads": 32, "max_position_embeddings": 32768}


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen2Config:
    """config.json of a Qwen2 model. windows: positions that each layer sees (0: all)."""

    decoder: DecoderConfig
    intermediate_size: int
    windows: tuple[int, ...]


def read_config(r: ConfigReader) -> Qwen2Config:
    """Reads config.json. Raises ConfigError, UnsupportedModelError."""
    r.require("hidden_act", ("silu", "swish"), default="silu")
    r.require("attention_bias", (False,), default=False)  # o has none, whatever q, k and v have
    decoder = read_decoder(r.with_defaults(DEFAULTS))
    return Qwen2Config(
        decoder=decoder,
        intermediate_size=r.integer("intermediate_size", maximum=MAX_WIDTH),
        windows=read_windows_from_layer(r, decoder.num_hidden_layers),
    )


def gguf_config(header: GgufHeader) -> dict[str, Any]:
    """config.json from GGUF metadata."""
    return decoder_config(header, "qwen2") | {
        "architectures": ["Qwen2ForCausalLM"],
        "attention_bias": False,
        "hidden_act": "silu",
        "intermediate_size": header.section().integer("feed_forward_length"),
    }


@register("qwen2", read_config=read_config, gguf=GgufNames("qwen2"), gguf_config=gguf_config)
def build(g: Graph, c: Qwen2Config) -> Value:
    """Pre-norm attention and SwiGLU in every layer."""
    d = c.decoder
    h = embed(g, d)
    for i in range(d.num_hidden_layers):
        p = f"model.layers.{i}"
        x = g.rms_norm(h, f"{p}.input_layernorm", d.rms_norm_eps)
        h = h + attention(g, d, i, x, qkv_bias=True, window=c.windows[i])
        x = g.rms_norm(h, f"{p}.post_attention_layernorm", d.rms_norm_eps)
        h = h + gated_mlp(g, x, f"{p}.mlp", c.intermediate_size)
    return head(g, d, h)
