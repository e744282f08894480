"""What the architectures share: settings of a Llama-like decoder, attention, gated MLP."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from edgert.config import ConfigReader, shown
from edgert.errors import UnsupportedModelError
from edgert.graph import Graph, RopeSpec, Value
from edgert.models.rope import read_rope

# Far above any model there is: a damaged file must not make us declare a graph that fills the memory.
MAX_LAYERS = 1024
MAX_WIDTH = 1 << 20
MAX_HEADS = 1 << 14
MAX_VOCAB = 1 << 24
MAX_HEAD_DIM = 1024
# Layers times experts: a damaged file must not make us name millions of weights.
MAX_EXPERTS = 1024
MAX_EXPERTS_IN_ALL = 1 << 16

LAYER_TYPES = ("full_attention", "sliding_attention")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """The fields of config.json that every architecture here has, under their names there."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    tie_word_embeddings: bool
    attention_bias: bool
    rope: RopeSpec


def read_decoder(r: ConfigReader, *, head_dim: int = 0, is_rope_partial: bool = False) -> DecoderConfig:
    """Reads the common fields. head_dim: what an absent head_dim means (0: hidden_size / num_attention_heads).

    is_rope_partial: the architecture reads partial_rotary_factor, else only 1 is taken.
    """
    if r.values.get("quantization_config") is not None:
        raise UnsupportedModelError(
            f"{r.source}: quantization_config: found a quantised checkpoint, expected float weights; "
            "use the original model"
        )
    hidden_size = r.integer("hidden_size", maximum=MAX_WIDTH)
    heads = r.integer("num_attention_heads", maximum=MAX_HEADS)
    kv_heads = r.integer("num_key_value_heads", default=heads, maximum=MAX_HEADS)
    if heads % kv_heads:
        raise r.error("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads ({heads})")
    if not head_dim and hidden_size % heads and r.values.get("head_dim") is None:
        raise r.error("num_attention_heads", heads, f"a divisor of hidden_size ({hidden_size})")
    head_dim = r.integer("head_dim", default=head_dim or hidden_size // heads, maximum=MAX_HEAD_DIM)
    if head_dim % 2:
        raise r.error("head_dim", head_dim, "an even number")
    max_position_embeddings = r.integer("max_position_embeddings", default=2048)
    return DecoderConfig(
        vocab_size=r.integer("vocab_size", maximum=MAX_VOCAB),
        hidden_size=hidden_size,
        num_hidden_layers=r.integer("num_hidden_layers", maximum=MAX_LAYERS),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        max_position_embeddings=max_position_embeddings,
        rms_norm_eps=r.number("rms_norm_eps", default=1e-6, above=0.0, maximum=1.0),
        tie_word_embeddings=r.flag("tie_word_embeddings", default=False),
        attention_bias=r.flag("attention_bias", default=False),
        rope=read_rope(r, head_dim, max_position_embeddings, is_partial=is_rope_partial),
    )


def read_scale(r: ConfigReader, key: str, default: float) -> float:
    """A factor, bounded so that it and its inverse are float32 numbers."""
    return r.number(key, default=default, above=1e-9, maximum=1e9)


def read_window(r: ConfigReader, *, default: int = 0) -> int:
    """sliding_window: null means none (0), an absent one `default`."""
    return r.integer("sliding_window", default=0 if "sliding_window" in r.values else default)


def read_windows(
    r: ConfigReader, num_hidden_layers: int, by_default: tuple[bool, ...], *, default: int = 0
) -> tuple[int, ...]:
    """The sliding window of each layer (0: none) by layer_types, else by `by_default`; `default`: an absent width."""
    window = read_window(r, default=default) if r.flag("use_sliding_window", default=False) else 0
    return tuple(window if slides else 0 for slides in read_sliding_layers(r, num_hidden_layers, by_default))


def read_sliding_layers(r: ConfigReader, num_hidden_layers: int, by_default: tuple[bool, ...]) -> tuple[bool, ...]:
    """Whether each layer has a sliding window, by layer_types, else by `by_default`."""
    types = r.strings("layer_types") or tuple(LAYER_TYPES[slides] for slides in by_default)
    if len(types) != num_hidden_layers:
        raise r.error("layer_types", f"a list of {len(types)}", f"a list of {num_hidden_layers}")
    for kind in types:
        if kind not in LAYER_TYPES:
            known = " or ".join(LAYER_TYPES)
            raise UnsupportedModelError(
                f"{r.source}: layer_types: found {shown(kind)}, expected {known}; use another model"
            )
    return tuple(kind == "sliding_attention" for kind in types)


def read_windows_from_layer(r: ConfigReader, num_hidden_layers: int) -> tuple[int, ...]:
    """The sliding window of each layer, from layer_types or from max_window_layers on (Qwen)."""
    first = r.integer("max_window_layers", default=28, minimum=0)
    return read_windows(r, num_hidden_layers, tuple(i >= first for i in range(num_hidden_layers)), default=4096)


def read_num_experts(r: ConfigReader, num_hidden_layers: int) -> int:
    """Experts of a layer, bounded over all layers."""
    num_experts = r.integer("num_experts", "num_local_experts", maximum=MAX_EXPERTS)
    if num_experts * num_hidden_layers > MAX_EXPERTS_IN_ALL:
        raise r.error("num_experts", num_experts, f"at most {MAX_EXPERTS_IN_ALL} experts in all layers")
    return num_experts


def embed(g: Graph, c: DecoderConfig) -> Value:
    """The token's row of the embedding."""
    return g.embed("model.embed_tokens", c.vocab_size, c.hidden_size)


def attention(
    g: Graph,
    c: DecoderConfig,
    layer: int,
    x: Value,
    *,
    qk_norm: Literal["", "head", "width"] = "",
    norm_offset: float = 0.0,
    qkv_bias: bool = False,
    has_rope: bool = True,
    window: int = 0,
    scale: float | None = None,
    soft_cap: float = 0.0,
) -> Value:
    """Self-attention with grouped queries and RoPE.

    qk_norm: RMS norm of q and k before RoPE, over each head or over the whole width. norm_offset: what is added to its
    weights. qkv_bias: q, k and v have biases also without attention_bias, which gives o one too. scale: of the scores
    (None: 1 / sqrt(head_dim)). soft_cap: of the scores (0: none).
    """
    p = f"model.layers.{layer}.self_attn"
    bias = c.attention_bias or qkv_bias
    q = g.linear(x, f"{p}.q_proj", c.num_attention_heads * c.head_dim, bias=bias)
    k = g.linear(x, f"{p}.k_proj", c.num_key_value_heads * c.head_dim, bias=bias)
    v = g.linear(x, f"{p}.v_proj", c.num_key_value_heads * c.head_dim, bias=bias)
    if qk_norm:
        norm_dim = c.head_dim if qk_norm == "head" else 0
        q = g.rms_norm(q, f"{p}.q_norm", c.rms_norm_eps, head_dim=norm_dim, weight_offset=norm_offset)
        k = g.rms_norm(k, f"{p}.k_norm", c.rms_norm_eps, head_dim=norm_dim, weight_offset=norm_offset)
    if has_rope:
        rope = g.add_rope(c.rope)
        q, k = g.rope(q, rope), g.rope(k, rope)
    mixed = g.attention(
        q,
        k,
        v,
        layer=layer,
        num_heads=c.num_attention_heads,
        num_kv_heads=c.num_key_value_heads,
        head_dim=c.head_dim,
        scale=1.0 / math.sqrt(c.head_dim) if scale is None else scale,
        window=window,
        soft_cap=soft_cap,
    )
    return g.linear(mixed, f"{p}.o_proj", c.hidden_size, bias=c.attention_bias)


def gated_mlp(
    g: Graph,
    x: Value,
    prefix: str,
    intermediate_size: int,
    *,
    bias: bool = False,
    act: Literal["silu", "gelu"] = "silu",
) -> Value:
    """down(act(gate x) * up x): SwiGLU, or GeGLU with the tanh form of GELU."""
    gate = g.linear(x, f"{prefix}.gate_proj", intermediate_size, bias=bias)
    up = g.linear(x, f"{prefix}.up_proj", intermediate_size, bias=bias)
    mixed = g.silu_mul(gate, up) if act == "silu" else g.gelu_mul(gate, up)
    return g.linear(mixed, f"{prefix}.down_proj", x.width, bias=bias)


def experts(
    g: Graph, x: Value, prefix: str, num_experts: int, top_k: int, intermediate_size: int, *, normalize: bool
) -> Value:
    """Routed SwiGLU experts; normalize: the weights of the chosen ones sum to 1."""
    return g.moe(
        x,
        g.linear(x, f"{prefix}.gate", num_experts, role="router"),
        f"{prefix}.experts",
        num_experts=num_experts,
        top_k=top_k,
        intermediate_size=intermediate_size,
        normalize=normalize,
    )


def head(g: Graph, c: DecoderConfig, x: Value, *, norm_offset: float = 0.0) -> Value:
    """The last norm and the logits; a tied head is the embedding again. norm_offset: added to the norm's weights."""
    x = g.rms_norm(x, "model.norm", c.rms_norm_eps, weight_offset=norm_offset)
    return g.linear(x, "model.embed_tokens" if c.tie_word_embeddings else "lm_head", c.vocab_size, role="output")
