"""OLMo 3: OLMo 2 with a window in three of four layers, whose RoPE is not scaled (transformers' modeling_olmo3)."""

from __future__ import annotations

from edgert.config import ConfigReader
from edgert.graph import Graph, Value
from edgert.models import olmo2
from edgert.models.blocks import MAX_WIDTH, read_decoder, read_sliding_layers, read_window
from edgert.models.gguf_names import GgufNames
from edgert.models.registry import register
from edgert.models.rope import read_rope, ropes_by_kind

DEFAULTS = {"rms_norm_eps": 1e-5, "rope_theta": 5e5}


def read_config(r: ConfigReader) -> olmo2.Olmo2Config:
    """Reads config.json. Raises ConfigError, UnsupportedModelError."""
    r.require("hidden_act", ("silu", "swish"), default="silu")
    r = r.with_defaults(DEFAULTS)
    theta = r.number("rope_theta", above=0.0)
    full, sliding = ropes_by_kind(r, theta=theta, local_theta=theta)
    decoder = read_decoder(full)
    layers, window = decoder.num_hidden_layers, read_window(r, default=4096)
    slides = read_sliding_layers(r, layers, tuple((i + 1) % 4 != 0 for i in range(layers)))
    return olmo2.Olmo2Config(
        decoder=decoder,
        intermediate_size=r.integer("intermediate_size", maximum=MAX_WIDTH),
        is_sliding=slides,
        sliding_window=window,
        local_rope=read_rope(sliding, decoder.head_dim, decoder.max_position_embeddings),
    )


@register(
    "olmo3",
    read_config=read_config,
    gguf=GgufNames("olmo2", layer=olmo2.NAMES),
    gguf_config=olmo2.gguf_config,
)
def build(g: Graph, c: olmo2.Olmo2Config) -> Value:
    """The graph of OLMo 2, with windows and two kinds of RoPE."""
    return olmo2.build(g, c)
