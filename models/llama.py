"""Llama 1 to 3 and whatever shares their layout (Touvron et al. 2023; transformers' modeling_llama)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgert.config import ConfigReader
from edgert.graph import Graph, Value
from edgert.models.blocks import MAX_WIDTH, DecoderConfig, attention, embed, gated_mlp, head, read_decoder
from edgert.models.gguf_names import GgufHeader, GgufNames, decoder_config
from edgert.models.registry import register


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig:
    """config.json of a Llama model. window: positions that every layer sees (0: all), which Mistral has."""

    decoder: DecoderConfig
    intermediate_size: int
    mlp_bias: bool
    window: int = 0


def read_config(r: ConfigReader) -> LlamaConfig:
    """Reads config.json. Raises ConfigError, UnsupportedModelError."""
    r.require("hidden_act", ("silu", "swish"), default="silu")
    return LlamaConfig(
        decoder=read_decoder(r),
        intermediate_size=r.integer("intermediate_size", maximum=MAX_WIDTH),
        mlp_bias=r.flag("mlp_bias", default=False),
    )


def gguf_config(header: GgufHeader) -> dict[str, Any]:
    """config.json from GGUF metadata, which calls Mistral and Mixtral llama too."""
    r = header.section()
    config: dict[str, Any] = {"hidden_act": "silu", "intermediate_size": r.integer("feed_forward_length")}
    window = r.integer("attention.sliding_window", default=0, minimum=0) or None
    if num_experts := r.integer("expert_count", default=0, minimum=0):
        r.require("expert_weights_norm", (True,), default=True)
        config |= {"num_local_experts": num_experts, "num_experts_per_tok": r.integer("expert_used_count")}
        model_type, name, config["sliding_window"] = "mixtral", "MixtralForCausalLM", window
    elif window:
        model_type, name, config["sliding_window"] = "mistral", "MistralForCausalLM", window
    else:
        model_type, name, config["mlp_bias"] = "llama", "LlamaForCausalLM", "blk.0.ffn_up.bias" in header.shapes
    return decoder_config(header, model_type, known=("attention.sliding_window",)) | config | {"architectures": [name]}


@register("llama", read_config=read_config, gguf=GgufNames("llama", permutes_rope=True), gguf_config=gguf_config)
def build(g: Graph, c: LlamaConfig) -> Value:
    """Pre-norm attention and SwiGLU in every layer."""
    d = c.decoder
    h = embed(g, d)
    for i in range(d.num_hidden_layers):
        p = f"model.layers.{i}"
        x = g.rms_norm(h, f"{p}.input_layernorm", d.rms_norm_eps)
        h = h + attention(g, d, i, x, window=c.window)
        x = g.rms_norm(h, f"{p}.post_attention_layernorm", d.rms_norm_eps)
        h = h + gated_mlp(g, x, f"{p}.mlp", c.intermediate_size, bias=c.mlp_bias)
    return head(g, d, h)
