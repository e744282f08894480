"""GGUF's names: tensors and metadata keys of the Llama family, in the spelling of Hugging Face checkpoints."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgert.config import ConfigReader, shown
from edgert.errors import UnsupportedModelError

_GLOBAL = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
}
_EXPERT = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}
_LAYER_NAME = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")
_EXPERT_NAME = re.compile(r"mlp\.experts\.(\d+)\.(\w+)")

# Tensors that carry no weights: rope_freqs and rope_factors go into the configuration, the rest is unused.
UNUSED = re.compile(r"rope_freqs\.weight|rope_factors_(long|short)\.weight|blk\.\d+\.attn_rot_embd\.weight")

# Metadata that changes what a model computes and that no architecture here knows: the values that change nothing.
_NEUTRAL: dict[str, tuple[float, ...]] = {
    "attention.clamp_kqv": (0,),
    "attention.max_alibi_bias": (0,),
    "attention.scale": (0,),
    "attention.sliding_window": (0,),
    "attn_logit_softcapping": (0,),
    "embedding_scale": (0, 1),
    "expert_group_count": (0, 1),
    "expert_shared_count": (0,),
    "expert_weights_scale": (0, 1),
    "expert_gating_func": (0, 1),
    "final_logit_softcapping": (0,),
    "logit_scale": (0, 1),
    "residual_scale": (0, 1),
    "rope.scaling.yarn_log_multiplier": (0,),
    "use_parallel_residual": (0,),
}


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """A weight inside a file's tensor: all of it, or matrix `expert` of a stacked one from row `first_row` on.

    is_slice: some rows of it, which follow those of the weights in `after`.
    """

    tensor: str
    expert: int | None = None
    first_row: int = 0
    permuted_heads: int = 0  # heads whose rows are in GGUF's order for RoPE (0: rows are as they should be)
    after: tuple[str, ...] = ()  # weights whose rows lie before it in the tensor
    is_slice: bool = False  # the tensor holds other weights too


# A weight's name inside its layer, the tensor that holds it, and the weights whose rows lie before its own.
FusedName = tuple[str, str, tuple[str, ...]]


def fused_place(
    fused: tuple[FusedName, ...], layer: str, tensor_layer: str, inner: str, kind: str
) -> TensorPlace | None:
    """Where a weight lies that shares its tensor with others; None if it has a tensor of its own."""
    for name, tensor, before in fused:
        if name == inner:
            after = tuple(f"{layer}.{other}.{kind}" for other in before)
            return TensorPlace(f"{tensor_layer}.{tensor}.{kind}", after=after, is_slice=True)
    return None


@dataclass(frozen=True, slots=True)
class GgufNames:
    """How one architecture is written as GGUF. permutes_rope: rows of q and k are interleaved within each head.

    layer: names of a layer's tensors where they are not the usual ones. fused: (weight, tensor, and the weights whose
    rows lie before in it).
    """

    architecture: str
    permutes_rope: bool = False
    layer: Mapping[str, str] = field(default_factory=dict)
    fused: tuple[FusedName, ...] = ()

    def place(self, name: str, num_heads: int, num_kv_heads: int) -> TensorPlace | None:
        """Where the weight that checkpoints call `name` lies, or None if GGUF has no name for it."""
        stem, _, kind = name.rpartition(".")
        if stem in _GLOBAL:
            return TensorPlace(f"{_GLOBAL[stem]}.{kind}")
        match = _LAYER_NAME.fullmatch(name)
        if match is None:
            return None
        layer, inner, kind = match.groups()
        if expert := _EXPERT_NAME.fullmatch(inner):
            return TensorPlace(f"blk.{layer}.{_EXPERT[expert[2]]}.{kind}", expert=int(expert[1]))
        if slice_ := fused_place(self.fused, f"model.layers.{layer}", f"blk.{layer}", inner, kind):
            return slice_
        short = self.layer.get(inner, _LAYER.get(inner))
        if short is None:
            return None
        heads = {"self_attn.q_proj": num_heads, "self_attn.k_proj": num_kv_heads}.get(inner, 0)
        return TensorPlace(f"blk.{layer}.{short}.{kind}", permuted_heads=heads if self.permutes_rope else 0)


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a config is rebuilt from. floats: reads a small float tensor by name."""

    source: str
    architecture: str
    metadata: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    floats: Callable[[str], list[float]]

    def section(self) -> ConfigReader:
        """The key-values of the architecture, without its name in front."""
        prefix = f"{self.architecture}."
        values = {key[len(prefix) :]: value for key, value in self.metadata.items() if key.startswith(prefix)}
        return ConfigReader(values, f"{self.source}: {self.architecture}")


def decoder_config(header: GgufHeader, model_type: str, *, known: tuple[str, ...] = ()) -> dict[str, Any]:
    """config.json of a Llama-like decoder. Raises ConfigError, UnsupportedModelError for metadata not supported.

    known: keys that the architecture reads itself, and that others refuse.
    """
    r = header.section()
    _refuse_unknown(r, known)
    heads, kv_heads = _heads(r)
    hidden_size = r.integer("embedding_length")
    head_dim = r.integer("attention.key_length", default=max(hidden_size // heads, 1))
    for key in ("attention.value_length", "rope.dimension_count"):
        if key not in known and r.integer(key, default=head_dim) != head_dim:
            raise UnsupportedModelError(
                f"{r.source}.{key}: found {shown(r.values[key])}, edgert runs {head_dim}; use another model"
            )
    theta = r.number("rope.freq_base", default=10000.0, above=0.0)
    if "rope.freq_base_swa" not in known:
        r.require("rope.freq_base_swa", (theta,), default=theta)
    context_length = r.integer("context_length")
    config = {
        "model_type": model_type,
        "vocab_size": _vocab_size(header, r),
        "hidden_size": hidden_size,
        "num_hidden_layers": r.integer("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": context_length,
        "rms_norm_eps": r.number("attention.layer_norm_rms_epsilon", above=0.0),
        "rope_theta": theta,
        "tie_word_embeddings": "output.weight" not in header.shapes,
        "attention_bias": "blk.0.attn_q.bias" in header.shapes,
    }
    scaling = _rope_scaling(header, r, context_length)
    return config | ({"rope_scaling": scaling} if scaling else {}) | _token_ids(header)


def window_layers(r: ConfigReader, period: int) -> dict[str, Any]:
    """layer_types where the metadata has a flag for each layer, which has a window; else every layer number `period`
    has none, and nothing is said of it."""
    flags = r.values.get("attention.sliding_window_pattern")
    if not isinstance(flags, list):
        r.require("attention.sliding_window_pattern", (period,), default=period)
        return {}
    return {"layer_types": ["sliding_attention" if flag else "full_attention" for flag in flags]}


def _refuse_unknown(r: ConfigReader, known: tuple[str, ...]) -> None:
    for key, neutral in _NEUTRAL.items():
        if key not in known and r.values.get(key) not in (None, *neutral):
            raise UnsupportedModelError(
                f"{r.source}.{key}: found {shown(r.values[key])}, edgert does not run that yet; use another model"
            )


def _heads(r: ConfigReader) -> tuple[int, int]:
    """Query and key-value heads; a list with one entry for each layer must hold one number only."""
    counts: list[int] = []
    for key, default in (("attention.head_count", ()), ("attention.head_count_kv", None)):
        found = set(r.integers(key, minimum=1)) or set(default if default is not None else counts)
        if len(found) > 1:
            raise UnsupportedModelError(f"{r.source}.{key}: found layers of different sizes, edgert runs one size")
        if not found:
            raise r.error(key, None, "a whole number")
        counts.append(found.pop())
    return counts[0], counts[1]


def _vocab_size(header: GgufHeader, r: ConfigReader) -> int:
    """Rows of the embedding: what the matrix has counts, then the metadata, then the list of tokens."""
    shape = header.shapes.get("token_embd.weight", ())
    if len(shape) == 2:
        return shape[0]
    tokens = ConfigReader(header.metadata, header.source).strings("tokenizer.ggml.tokens")
    return r.integer("vocab_size", default=len(tokens))


def _rope_scaling(header: GgufHeader, r: ConfigReader, context_length: int) -> dict[str, Any]:
    """rope_scaling, empty for plain RoPE. Factors stored as a tensor (Llama 3) are longrope with one list."""
    kind = r.string("rope.scaling.type", default="none")
    original = r.integer("rope.scaling.original_context_length", default=context_length)
    factor = r.number("rope.scaling.factor", default=1.0, above=0.0)
    attn_factor = r.number("rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor", default=1.0, above=0.0)
    if "rope_freqs.weight" in header.shapes:
        factors = header.floats("rope_freqs.weight")
        return _longrope(factors, factors, original, 1.0)
    if kind == "longrope" or "rope_factors_long.weight" in header.shapes:
        names = ("rope_factors_short.weight", "rope_factors_long.weight")
        short, long = (header.floats(name) for name in names)
        return _longrope(short, long, original, attn_factor)
    if kind == "linear" and factor != 1.0:
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        scaling: dict[str, Any] = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
        for theirs, ours in (("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow")):
            if f"rope.scaling.{theirs}" in r.values:
                scaling[ours] = r.number(f"rope.scaling.{theirs}", above=0.0)
        if attn_factor != 1.0:
            raise UnsupportedModelError(f"{r.source}.rope.scaling.attn_factor: found {attn_factor}, edgert runs 1")
        return scaling
    if kind not in ("none", "linear"):
        raise UnsupportedModelError(
            f"{r.source}.rope.scaling.type: found {shown(kind)}, "
            "expected none, linear, yarn or longrope; use another model"
        )
    old_factor = r.number("rope.scale_linear", default=1.0, above=0.0)
    return {"rope_type": "linear", "factor": old_factor} if old_factor != 1.0 else {}


def _longrope(short: list[float], long: list[float], original: int, attention_factor: float) -> dict[str, Any]:
    return {
        "rope_type": "longrope",
        "short_factor": short,
        "long_factor": long,
        "original_max_position_embeddings": original,
        "attention_factor": attention_factor,
    }


def _token_ids(header: GgufHeader) -> dict[str, Any]:
    """bos_token_id, and eos_token_id as the list of all tokens that end a turn."""
    r = ConfigReader(header.metadata, header.source)
    bos = r.integers("tokenizer.ggml.bos_token_id")
    stops = [
        token
        for name in ("eos", "eot", "eom")
        for token in r.integers(f"tokenizer.ggml.{name}_token_id")
        if token != 2**32 - 1  # written where there is none
    ]
    found: dict[str, Any] = {"eos_token_id": sorted(set(stops))} if stops else {}
    return found | ({"bos_token_id": bos[0]} if bos else {})
