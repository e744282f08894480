"""SmolLM3: Llama where some layers have no rotary positions (transformers' modeling_smollm3)."""

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
    read_windows,
)
from edgert.models.gguf_names import GgufHeader, GgufNames, decoder_config
from edgert.models.registry import register

DEFAULTS = {
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "rope_theta": 2e6,
    "tie_word_embeddings": True,
}
NO_ROPE_LAYER_INTERVAL = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SmolLM3Config:
    """config.json of a SmolLM3 model. has_rope, windows (positions seen, 0: all): for each layer."""

    decoder: DecoderConfig
    intermediate_size: int
    mlp_bias: bool
    has_rope: tuple[bool, ...]
    windows: tuple[int, ...]


def read_config(r: ConfigReader) -> SmolLM3Config:
    """Reads config.json. Raises ConfigError, UnsupportedModelError."""
    r.require("hidden_act", ("silu", "swish"), default="silu")
    decoder = read_decoder(r.with_defaults(DEFAULTS))
    layers = decoder.num_hidden_layers
    interval = r.integer("no_rope_layer_interval", default=NO_ROPE_LAYER_INTERVAL)
    # Despite its name, 1 says that a layer has rotary positions.
    flags = r.integers("no_rope_layers", maximum=1) or tuple(int((i + 1) % interval != 0) for i in range(layers))
    if len(flags) < layers:
        raise r.error("no_rope_layers", f"a list of {len(flags)}", f"a list of {layers}")
    has_rope = tuple(bool(flag) for flag in flags[:layers])
    return SmolLM3Config(
        decoder=decoder,
        intermediate_size=r.integer("intermediate_size", maximum=MAX_WIDTH),
        mlp_bias=r.flag("mlp_bias", default=False),
        has_rope=has_rope,
        windows=read_windows(r, layers, tuple(not rotates for rotates in has_rope)),
    )


def gguf_config(header: GgufHeader) -> dict[str, Any]:
    """config.json from GGUF metadata; the interval has no key there, llama.cpp takes 4 for all."""
    return decoder_config(header, "smollm3") | {
        "architectures": ["SmolLM3ForCausalLM"],
        "hidden_act": "silu",
        "intermediate_size": header.section().integer("feed_forward_length"),
        "mlp_bias": "blk.0.ffn_up.bias" in header.shapes,
        "no_rope_layer_interval": header.section().integer("no_rope_layer_interval", default=NO_ROPE_LAYER_INTERVAL),
    }


@register("smollm3", read_config=read_config, gguf=GgufNames("smollm3", permutes_rope=True), gguf_config=gguf_config)
def build(g: Graph, c: SmolLM3Config) -> Value:
    """Pre-norm attention and SwiGLU in every layer."""
    d = c.decoder
    h = embed(g, d)
    for i in range(d.num_hidden_layers):
        p = f"model.layers.{i}"
        x = g.rms_norm(h, f"{p}.input_layernorm", d.rms_norm_eps)
        h = h + attention(g, d, i, x, has_rope=c.has_rope[i], window=c.windows[i])
        x = g.rms_norm(h, f"{p}.post_attention_layernorm", d.rms_norm_eps)
        h = h + gated_mlp(g, x, f"{p}.mlp", c.intermediate_size, bias=c.mlp_bias)
    return head(g, d, h)
