"""OLMo 2: norms after attention and MLP, and over the whole width of q and k (transformers' modeling_olmo2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from edgert.config import ConfigReader
from edgert.graph import Graph, RopeSpec, Value
from edgert.models.blocks import MAX_WIDTH, DecoderConfig, attention, embed, gated_mlp, head, read_decoder
from edgert.models.gguf_names import GgufHeader, GgufNames, decoder_config, window_layers
from edgert.models.registry import register

DEFAULTS = {"rms_norm_eps": 1e-5}
NAMES = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Olmo2Config:
    """config.json of an OLMo 2 or 3 model.

    is_sliding: of each layer of OLMo 3; those see sliding_window positions (0: all) and have the rotary positions
    local_rope. Empty in OLMo 2.
    """

    decoder: DecoderConfig
    intermediate_size: int
    is_sliding: tuple[bool, ...] = ()
    sliding_window: int = 0
    local_rope: RopeSpec | None = None


def read_config(r: ConfigReader) -> Olmo2Config:
    """Reads config.json. Raises ConfigError, UnsupportedModelError."""
    r.require("hidden_act", ("silu", "swish"), default="silu")
    return Olmo2Config(
        decoder=read_decoder(r.with_defaults(DEFAULTS)),
        intermediate_size=r.integer("intermediate_size", maximum=MAX_WIDTH),
    )


def gguf_config(header: GgufHeader) -> dict[str, Any]:
    """config.json from GGUF metadata, which calls OLMo 3 olmo2 too: it has a window."""
    r = header.section()
    config: dict[str, Any] = {"hidden_act": "silu", "intermediate_size": r.integer("feed_forward_length")}
    if window := r.integer("attention.sliding_window", default=0, minimum=0):
        model_type, name = "olmo3", "Olmo3ForCausalLM"
        config |= {"sliding_window": window} | window_layers(r, 4)
    else:
        model_type, name = "olmo2", "Olmo2ForCausalLM"
    return decoder_config(header, model_type, known=("attention.sliding_window",)) | config | {"architectures": [name]}


@register("olmo2", read_config=read_config, gguf=GgufNames("olmo2", layer=NAMES), gguf_config=gguf_config)
def build(g: Graph, c: Olmo2Config) -> Value:
    """Attention with normed q and k, then SwiGLU; each is normed before it is added."""
    d = c.decoder
    h = embed(g, d)
    for i in range(d.num_hidden_layers):
        p = f"model.layers.{i}"
        slides = bool(c.is_sliding) and c.is_sliding[i]
        local = replace(d, rope=c.local_rope) if slides and c.local_rope else d
        mixed = attention(g, local, i, h, qk_norm="width", window=c.sliding_window if slides else 0)
        h = h + g.rms_norm(mixed, f"{p}.post_attention_layernorm", d.rms_norm_eps)
        mixed = gated_mlp(g, h, f"{p}.mlp", c.intermediate_size)
        h = h + g.rms_norm(mixed, f"{p}.post_feedforward_layernorm", d.rms_norm_eps)
    return head(g, d, h)
