"""Qwen3-MoE: Qwen3 with routed SwiGLU experts instead of most MLPs (transformers' modeling_qwen3_moe)."""

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
    experts,
    gated_mlp,
    head,
    read_decoder,
    read_num_experts,
    read_window,
)
from edgert.models.gguf_names import GgufHeader, GgufNames, decoder_config
from edgert.models.registry import register


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3MoeConfig:
    """config.json of a Qwen3-MoE model. has_experts: for each layer, else it has a plain MLP."""

    decoder: DecoderConfig
    intermediate_size: int
    moe_intermediate_size: int
    num_experts: int
    num_experts_per_tok: int
    norm_topk_prob: bool
    has_experts: tuple[bool, ...]
    window: int


def read_config(r: ConfigReader) -> Qwen3MoeConfig:
    """Reads config.json. Raises ConfigError, UnsupportedModelError."""
    r.require("hidden_act", ("silu", "swish"), default="silu")
    decoder = read_decoder(r)
    num_experts = read_num_experts(r, decoder.num_hidden_layers)
    step = r.integer("decoder_sparse_step", default=1)
    dense = set(r.integers("mlp_only_layers"))
    return Qwen3MoeConfig(
        decoder=decoder,
        intermediate_size=r.integer("intermediate_size", maximum=MAX_WIDTH),
        moe_intermediate_size=r.integer("moe_intermediate_size", maximum=MAX_WIDTH),
        num_experts=num_experts,
        num_experts_per_tok=r.integer("num_experts_per_tok", maximum=num_experts),
        norm_topk_prob=r.flag("norm_topk_prob", default=False),
        has_experts=tuple(i not in dense and (i + 1) % step == 0 for i in range(decoder.num_hidden_layers)),
        window=read_window(r, default=4096) if r.flag("use_sliding_window", default=False) else 0,
    )


def gguf_config(header: GgufHeader) -> dict[str, Any]:
    """config.json from GGUF metadata."""
    r = header.section()
    config = decoder_config(header, "qwen3_moe")
    layers = range(min(config["num_hidden_layers"], len(header.shapes)))
    return config | {
        "architectures": ["Qwen3MoeForCausalLM"],
        "hidden_act": "silu",
        "intermediate_size": r.integer("feed_forward_length", "expert_feed_forward_length"),
        "moe_intermediate_size": r.integer("expert_feed_forward_length"),
        "num_experts": r.integer("expert_count"),
        "num_experts_per_tok": r.integer("expert_used_count"),
        # Only models that normalise were written before the key existed.
        "norm_topk_prob": r.flag("expert_weights_norm", default=True),
        "decoder_sparse_step": 1,
        "mlp_only_layers": [i for i in layers if f"blk.{i}.ffn_gate_inp.weight" not in header.shapes],
    }


@register("qwen3_moe", read_config=read_config, gguf=GgufNames("qwen3moe"), gguf_config=gguf_config)
def build(g: Graph, c: Qwen3MoeConfig) -> Value:
    """Pre-norm attention with normed q and k, then routed experts (or an MLP), in every layer."""
    d = c.decoder
    h = embed(g, d)
    for i in range(d.num_hidden_layers):
        p = f"model.layers.{i}"
        x = g.rms_norm(h, f"{p}.input_layernorm", d.rms_norm_eps)
        h = h + attention(g, d, i, x, qk_norm="head", window=c.window)
        x = g.rms_norm(h, f"{p}.post_attention_layernorm", d.rms_norm_eps)
        if c.has_experts[i]:
            width, normalize = c.moe_intermediate_size, c.norm_topk_prob
            h = h + experts(g, x, f"{p}.mlp", c.num_experts, c.num_experts_per_tok, width, normalize=normalize)
        else:
            h = h + gated_mlp(g, x, f"{p}.mlp", c.intermediate_size)
    return head(g, d, h)
