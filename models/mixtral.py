"""Mixtral: Mistral with routed SwiGLU experts (Jiang et al. 2024; transformers' modeling_mixtral)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from edgert.config import ConfigReader
from edgert.graph import Graph, Value
from edgert.models import llama
from edgert.models.blocks import (
    MAX_WIDTH,
    DecoderConfig,
    attention,
    embed,
    experts,
    head,
    read_decoder,
    read_num_experts,
    read_window,
)
from edgert.models.gguf_names import GgufNames, TensorPlace
from edgert.models.registry import register

DEFAULTS = {
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e6,
}
_MATRICES = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
_EXPERT = re.compile(r"(model\.layers\.\d+)\.mlp\.experts\.(\d+)\.(\w+)\.weight")
_ROUTER = re.compile(r"(model\.layers\.\d+)\.mlp\.gate\.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtralConfig:
    """config.json of a Mixtral model. window: positions that every layer sees (0: all)."""

    decoder: DecoderConfig
    intermediate_size: int
    num_local_experts: int
    num_experts_per_tok: int
    window: int


def read_config(r: ConfigReader) -> MixtralConfig:
    """Reads config.json. Raises ConfigError, UnsupportedModelError."""
    r.require("hidden_act", ("silu", "swish"), default="silu")
    decoder = read_decoder(r.with_defaults(DEFAULTS))
    num_experts = read_num_experts(r.with_defaults({"num_local_experts": 8}), decoder.num_hidden_layers)
    return MixtralConfig(
        decoder=decoder,
        intermediate_size=r.integer("intermediate_size", maximum=MAX_WIDTH),
        num_local_experts=num_experts,
        num_experts_per_tok=r.integer("num_experts_per_tok", default=2, maximum=num_experts),
        window=read_window(r),
    )


def place(name: str) -> TensorPlace | None:
    """The names of published checkpoints, which transformers 5 writes too; inside it has mlp.experts, stacked."""
    if expert := _EXPERT.fullmatch(name):
        return TensorPlace(f"{expert[1]}.block_sparse_moe.experts.{expert[2]}.{_MATRICES[expert[3]]}.weight")
    router = _ROUTER.fullmatch(name)
    return TensorPlace(f"{router[1]}.block_sparse_moe.gate.weight") if router else None


@register(
    "mixtral",
    read_config=read_config,
    gguf=GgufNames("llama", permutes_rope=True),
    gguf_config=llama.gguf_config,
    place=place,
)
def build(g: Graph, c: MixtralConfig) -> Value:
    """Pre-norm attention, then the chosen experts with weights that sum to 1, in every layer."""
    d = c.decoder
    h = embed(g, d)
    for i in range(d.num_hidden_layers):
        p = f"model.layers.{i}"
        h = h + attention(g, d, i, g.rms_norm(h, f"{p}.input_layernorm", d.rms_norm_eps), window=c.window)
        x = g.rms_norm(h, f"{p}.post_attention_layernorm", d.rms_norm_eps)
        count, top_k = c.num_local_experts, c.num_experts_per_tok
        h = h + experts(g, x, f"{p}.mlp", count, top_k, c.intermediate_size, normalize=True)
    return head(g, d, h)
