"""Rotary positions in config.json: the spellings of transformers 4 and 5, and every type of scaling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from edgert.config import ConfigReader, shown
from edgert.errors import UnsupportedModelError
from edgert.graph import RopeSpec

ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")


def read_rope(r: ConfigReader, head_dim: int, max_position_embeddings: int, *, is_partial: bool = False) -> RopeSpec:
    """Rotary positions in the spelling of transformers 4 (rope_theta, rope_scaling) and 5 (rope_parameters).

    Every value that a scaling type derives from others is filled in, so that the core finds it: factor and
    original_max_position_embeddings.
    """
    inner = r.section("rope_parameters", "rope_scaling") or ConfigReader({}, r.source)
    if any(isinstance(value, Mapping) for value in inner.values.values()):
        raise UnsupportedModelError(f"{inner.source}: found settings for each kind of layer, edgert runs one for all")
    kind = inner.string("rope_type", "type", default="default")
    if kind not in ROPE_TYPES:
        known = ", ".join(ROPE_TYPES)
        raise UnsupportedModelError(
            f"{r.source}: rope_type: found {shown(kind)}, expected one of {known}; use another model"
        )
    outer_theta = r.number("rope_theta", default=10000.0, above=0.0)
    theta = inner.number("rope_theta", default=outer_theta, above=0.0)
    rotary_dim = _rotary_dim(r, inner, head_dim) if is_partial else head_dim
    if not is_partial:
        for part in (r, inner):
            part.require("partial_rotary_factor", (1.0, 1), default=1.0)
    scaling = {} if kind == "default" else _scaling(r, inner, kind, rotary_dim, max_position_embeddings)
    return RopeSpec(
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        theta=theta,
        scaling=scaling,
        max_position_embeddings=max_position_embeddings,
    )


def _rotary_dim(r: ConfigReader, inner: ConfigReader, head_dim: int) -> int:
    """Values of each head that are rotated: partial_rotary_factor of them, the first ones."""
    outer = r.number("partial_rotary_factor", default=1.0, above=0.0, maximum=1.0)
    factor = inner.number("partial_rotary_factor", default=outer, above=0.0, maximum=1.0)
    rotary_dim = int(head_dim * factor + 1e-6)  # cut off as transformers does, but for a rounded quotient
    if rotary_dim < 2 or rotary_dim % 2:
        raise r.error("partial_rotary_factor", factor, f"an even number of the {head_dim} values of a head")
    return rotary_dim


def _scaling(
    r: ConfigReader, inner: ConfigReader, kind: str, rotary_dim: int, max_position_embeddings: int
) -> Mapping[str, Any]:
    found: dict[str, Any] = {"rope_type": kind}
    if kind in ("linear", "dynamic"):
        return found | {"factor": inner.number("factor", above=0.0)}
    original = r.integer(
        "original_max_position_embeddings",
        default=inner.integer("original_max_position_embeddings", default=max_position_embeddings),
    )
    found["original_max_position_embeddings"] = original
    if kind == "llama3":
        low, high = inner.number("low_freq_factor", above=0.0), inner.number("high_freq_factor", above=0.0)
        if low == high:
            raise inner.error("high_freq_factor", high, "another number than low_freq_factor")
        return found | {"factor": inner.number("factor", above=0.0), "low_freq_factor": low, "high_freq_factor": high}
    factor = inner.number("factor", default=max_position_embeddings / original, above=0.0)
    found["factor"] = factor
    if kind == "longrope":
        for key in ("short_factor", "long_factor"):
            found[key] = list(inner.numbers(key, length=rotary_dim // 2, above=0.0))
        implied = 1.0 if factor <= 1.0 else math.sqrt(1 + math.log(factor) / math.log(max(original, 2)))
        return found | {"attention_factor": inner.number("attention_factor", default=implied, above=0.0)}
    for key in ("beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor"):
        if inner.values.get(key) is not None:
            found[key] = inner.number(key, above=-1e-30)
    if inner.values.get("truncate") is not None:
        found["truncate"] = inner.flag("truncate")
    return found


def ropes_by_kind(r: ConfigReader, *, theta: float, local_theta: float) -> tuple[ConfigReader, ConfigReader]:
    """The configuration with the rotary positions of full layers, and with those of layers with a window.

    transformers 5 has rope_parameters for each kind; in 4 rope_theta and rope_scaling are those of full layers, and
    rope_local_base_freq is the base of the others. theta, local_theta: bases that are absent.
    """
    both = r.section("rope_parameters")
    by_kind = both.values if both and any(isinstance(v, Mapping) for v in both.values.values()) else None
    flat = {key: value for key, value in r.values.items() if key not in ("rope_parameters", "rope_scaling")}
    theta = r.number("rope_theta", default=theta, above=0.0)
    local_theta = r.number("rope_local_base_freq", default=local_theta, above=0.0)
    if by_kind is None:
        full = {"rope_parameters": both.values if both else None, "rope_scaling": r.values.get("rope_scaling")}
        sliding = None
    else:
        full, sliding = {"rope_parameters": by_kind.get("full_attention")}, by_kind.get("sliding_attention")
    return (
        ConfigReader(flat | full | {"rope_theta": theta}, r.source),
        ConfigReader(flat | {"rope_parameters": sliding, "rope_theta": local_theta}, r.source),
    )
