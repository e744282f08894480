"""Phi-3 and Phi-4: q, k, v in one matrix, gate and up in another, LongRoPE (transformers' modeling_phi3)."""

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
    read_window,
)
from edgert.models.gguf_names import FusedName, GgufHeader, GgufNames, TensorPlace, decoder_config, fused_place
from edgert.models.registry import register

DEFAULTS = {"max_position_embeddings": 4096, "rms_norm_eps": 1e-5}


def _fused(qkv: str, gate_up: str) -> tuple[FusedName, ...]:
    q, k, v = (f"self_attn.{name}_proj" for name in "qkv")
    gate, up = "mlp.gate_proj", "mlp.up_proj"
    return ((q, qkv, ()), (k, qkv, (q,)), (v, qkv, (q, k)), (gate, gate_up, ()), (up, gate_up, (gate,)))


_CHECKPOINT = _fused("self_attn.qkv_proj", "mlp.gate_up_proj")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phi3Config:
    """config.json of a Phi-3 model. window: positions that every layer sees (0: all)."""

    decoder: DecoderConfig
    intermediate_size: int
    window: int


def read_config(r: ConfigReader) -> Phi3Config:
    """Reads config.json. Raises ConfigError, UnsupportedModelError."""
    r.require("hidden_act", ("silu", "swish"), default="silu")
    r.require("attention_bias", (False,), default=False)
    values = dict(r.with_defaults(DEFAULTS).values)
    for key in ("rope_parameters", "rope_scaling"):
        rope = r.section(key)
        kind = rope.string("rope_type", "type", default="default") if rope else "default"
        if rope and kind in ("su", "yarn"):  # the names that LongRoPE had at first
            values[key] = {**rope.values, "rope_type": "longrope"}
    return Phi3Config(
        decoder=read_decoder(ConfigReader(values, r.source), is_rope_partial=True),
        intermediate_size=r.integer("intermediate_size", maximum=MAX_WIDTH),
        window=read_window(r),
    )


def gguf_config(header: GgufHeader) -> dict[str, Any]:
    """config.json from GGUF metadata."""
    r = header.section()
    config = decoder_config(header, "phi3", known=("attention.sliding_window", "rope.dimension_count"))
    head_dim = config["head_dim"]
    return config | {
        "architectures": ["Phi3ForCausalLM"],
        "hidden_act": "silu",
        "intermediate_size": r.integer("feed_forward_length"),
        "partial_rotary_factor": r.integer("rope.dimension_count", default=head_dim, maximum=head_dim) / head_dim,
        "sliding_window": r.integer("attention.sliding_window", default=0, minimum=0) or None,
    }


def place(name: str) -> TensorPlace | None:
    """Rows of the fused matrices."""
    parts = name.split(".")
    return fused_place(_CHECKPOINT, ".".join(parts[:3]), ".".join(parts[:3]), ".".join(parts[3:-1]), parts[-1])


@register(
    "phi3",
    read_config=read_config,
    gguf=GgufNames("phi3", fused=_fused("attn_qkv", "ffn_up")),
    gguf_config=gguf_config,
    place=place,
)
def build(g: Graph, c: Phi3Config) -> Value:
    """Pre-norm attention and SwiGLU in every layer."""
    d = c.decoder
    h = embed(g, d)
    for i in range(d.num_hidden_layers):
        p = f"model.layers.{i}"
        h = h + attention(g, d, i, g.rms_norm(h, f"{p}.input_layernorm", d.rms_norm_eps), window=c.window)
        x = g.rms_norm(h, f"{p}.post_attention_layernorm", d.rms_norm_eps)
        h = h + gated_mlp(g, x, f"{p}.mlp", c.intermediate_size)
    return head(g, d, h)
