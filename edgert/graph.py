"""What a model computes, as a list of declarations: built by models/<arch>.py, compiled by the C++ core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class WeightSpec:
    """A weight that a checkpoint must provide: rows x cols, or a vector of `rows` values (cols = 0)."""

    name: str
    rows: int
    cols: int
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeSpec:
    """Rotary positions. `scaling` is config.json's rope_parameters (or rope_scaling) object, empty for plain RoPE.

    Source: Su et al. 2021 (RoFormer); scaling types as in transformers: linear, dynamic, yarn, llama3, longrope.
    """

    head_dim: int
    rotary_dim: int
    theta: float
    scaling: Mapping[str, Any]
    max_position_embeddings: int


@dataclass(frozen=True, slots=True)
class Node:
    """One operation. `inputs` are node indices; `width` is the number of float32 values a token has in its output."""

    op: str
    inputs: tuple[int, ...]
    weights: tuple[str, ...]
    attributes: Mapping[str, float]
    width: int


@dataclass(frozen=True, slots=True)
class Value:
    """The output of a node: one vector of `width` float32 values for each token."""

    graph: Graph
    index: int

    @property
    def width(self) -> int:
        return self.graph.nodes[self.index].width

    def __add__(self, other: Value) -> Value:
        return self.graph.add(self, other)


@dataclass(slots=True)
class Graph:
    """Nodes in the order of execution, the weights that they name, the rotary tables that they use."""

    nodes: list[Node] = field(default_factory=list)
    weights: dict[str, WeightSpec] = field(default_factory=dict)
    ropes: list[RopeSpec] = field(default_factory=list)
    output_index: int = -1

    def embed(self, name: str, vocab_size: int, hidden_size: int) -> Value:
        """Rows of a vocab_size x hidden_size table, one for each token."""
        weight = self._weight(f"{name}.weight", vocab_size, hidden_size, "embedding")
        return self._node("embed", (), (weight,), hidden_size)

    def rms_norm(self, x: Value, name: str, eps: float, *, head_dim: int = 0, weight_offset: float = 0.0) -> Value:
        """x / sqrt(mean(x^2) + eps) * (weight + weight_offset) over the whole vector, or over each head_dim values."""
        weight = self._weight(f"{name}.weight", head_dim or x.width, 0, "norm")
        return self._node("rms_norm", (x,), (weight,), x.width, eps=eps, head_dim=head_dim, weight_offset=weight_offset)

    def linear(self, x: Value, name: str, out_features: int, *, bias: bool = False, role: str = "") -> Value:
        """W x (+ bias): W is out_features x x.width. `role` names the matrix's place, by default its last name."""
        weights = [self._weight(f"{name}.weight", out_features, x.width, role or _role(name))]
        if bias:
            weights.append(self._weight(f"{name}.bias", out_features, 0, "bias"))
        return self._node("linear", (x,), tuple(weights), out_features)

    def add_rope(self, rope: RopeSpec) -> int:
        """Registers rotary parameters once; returns the index that `rope` takes."""
        if rope not in self.ropes:
            self.ropes.append(rope)
        return self.ropes.index(rope)

    def rope(self, x: Value, rope: int) -> Value:
        """Rotates every head of x by its token's position (pairs i, i + rotary_dim / 2)."""
        return self._node("rope", (x,), (), x.width, rope=rope, head_dim=self.ropes[rope].head_dim)

    def attention(
        self,
        q: Value,
        k: Value,
        v: Value,
        *,
        layer: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        scale: float,
        window: int = 0,
        sinks: int = 0,
        soft_cap: float = 0.0,
    ) -> Value:
        """Appends k, v to the KV cache of `layer`, then softmax(q k^T * scale) v for each query head.

        window: positions a query sees, itself included (0: all); sinks: first positions that stay visible beside the
        window; soft_cap: cap * tanh(score / cap) (0: none).
        """
        return self._node(
            "attention",
            (q, k, v),
            (),
            num_heads * head_dim,
            layer=layer,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            scale=scale,
            window=window,
            sinks=sinks,
            soft_cap=soft_cap,
        )

    def add(self, a: Value, b: Value) -> Value:
        return self._node("add", (a, b), (), a.width)

    def silu_mul(self, gate: Value, up: Value) -> Value:
        """silu(gate) * up."""
        return self._node("silu_mul", (gate, up), (), gate.width)

    def gelu_mul(self, gate: Value, up: Value) -> Value:
        """gelu(gate) * up, with the tanh form of GELU."""
        return self._node("gelu_mul", (gate, up), (), gate.width)

    def scale(self, x: Value, factor: float) -> Value:
        """factor * x, where factor is rounded to float32; a factor of 1 declares nothing."""
        return x if factor == 1.0 else self._node("scale", (x,), (), x.width, scale=factor)

    def soft_cap(self, x: Value, cap: float) -> Value:
        """cap * tanh(x / cap); a cap of 0 declares nothing."""
        return x if cap == 0.0 else self._node("soft_cap", (x,), (), x.width, soft_cap=cap)

    def relu2(self, x: Value) -> Value:
        """max(x, 0)^2."""
        return self._node("relu2", (x,), (), x.width)

    def moe(
        self,
        x: Value,
        router: Value,
        prefix: str,
        *,
        num_experts: int,
        top_k: int,
        intermediate_size: int,
        normalize: bool,
    ) -> Value:
        """Softmax over the router's logits, then the sum of the top_k experts (SwiGLU) by weight.

        normalize: the weights of the chosen experts are divided by their sum.
        """
        weights: list[str] = []
        for e in range(num_experts):
            p = f"{prefix}.{e}"
            weights.append(self._weight(f"{p}.gate_proj.weight", intermediate_size, x.width, "expert_gate"))
            weights.append(self._weight(f"{p}.up_proj.weight", intermediate_size, x.width, "expert_up"))
            weights.append(self._weight(f"{p}.down_proj.weight", x.width, intermediate_size, "expert_down"))
        return self._node(
            "moe",
            (x, router),
            tuple(weights),
            x.width,
            num_experts=num_experts,
            top_k=top_k,
            intermediate_size=intermediate_size,
            normalize=normalize,
        )

    def output(self, value: Value) -> None:
        """Marks the value whose rows are the logits."""
        self.output_index = value.index

    def compile_args(self) -> dict[str, Any]:
        """Plain values for `_core.Runtime`."""
        return {
            "nodes": [
                (n.op, list(n.inputs), list(n.weights), {k: float(v) for k, v in n.attributes.items()}, n.width)
                for n in self.nodes
            ],
            "ropes": [_rope_args(r) for r in self.ropes],
            "output": self.output_index,
        }

    def _weight(self, name: str, rows: int, cols: int, role: str) -> str:
        self.weights.setdefault(name, WeightSpec(name, rows, cols, role))
        return name

    def _node(
        self, op: str, inputs: tuple[Value, ...], weights: tuple[str, ...], width: int, **attributes: float
    ) -> Value:
        self.nodes.append(Node(op, tuple(v.index for v in inputs), weights, attributes, width))
        return Value(self, len(self.nodes) - 1)


_ROLES = {
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_o",
    "gate_proj": "mlp_gate",
    "up_proj": "mlp_up",
    "down_proj": "mlp_down",
    "gate": "router",
    "lm_head": "output",
}


def _role(name: str) -> str:
    return _ROLES.get(name.rsplit(".", 1)[-1], "linear")


def _rope_args(rope: RopeSpec) -> dict[str, Any]:
    """Numbers only: lists and scalars of the scaling object, with its type as a string."""
    return {
        "head_dim": rope.head_dim,
        "rotary_dim": rope.rotary_dim,
        "theta": float(rope.theta),
        "max_position_embeddings": rope.max_position_embeddings,
        "type": str(rope.scaling.get("rope_type", rope.scaling.get("type", "default"))),
        "scalars": {k: float(v) for k, v in rope.scaling.items() if isinstance(v, int | float) and v is not None},
        "lists": {k: [float(x) for x in v] for k, v in rope.scaling.items() if isinstance(v, list | tuple)},
    }
