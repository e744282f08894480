"""Mistral: Llama with a sliding window in every layer (Jiang et al. 2023; transformers' modeling_mistral)."""

from __future__ import annotations

from edgert.config import ConfigReader, shown
from edgert.errors import UnsupportedModelError
from edgert.graph import Graph, Value
from edgert.models import llama
from edgert.models.blocks import MAX_WIDTH, read_decoder, read_window
from edgert.models.gguf_names import GgufNames
from edgert.models.registry import register

DEFAULTS = {"num_key_value_heads": 8, "max_position_embeddings": 131072}


def read_config(r: ConfigReader) -> llama.LlamaConfig:
    """Reads config.json. Raises ConfigError, UnsupportedModelError."""
    r.require("hidden_act", ("silu", "swish"), default="silu")
    window = read_window(r, default=4096)
    expected = "sliding_attention" if window else "full_attention"
    for kind in r.strings("layer_types"):
        if kind != expected:
            raise UnsupportedModelError(
                f"{r.source}: layer_types: found {shown(kind)}, edgert runs {expected} in every layer; "
                "use another model"
            )
    return llama.LlamaConfig(
        decoder=read_decoder(r.with_defaults(DEFAULTS)),
        intermediate_size=r.integer("intermediate_size", maximum=MAX_WIDTH),
        mlp_bias=False,
        window=window,
    )


@register(
    "mistral",
    read_config=read_config,
    gguf=GgufNames("llama", permutes_rope=True),
    gguf_config=llama.gguf_config,
)
def build(g: Graph, c: llama.LlamaConfig) -> Value:
    """The graph of Llama, with the window."""
    return llama.build(g, c)
