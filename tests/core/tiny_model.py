"""A small model of random float32 weights for the core, and the same model in numpy float64."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgert import _core
from edgert.graph import Graph, RopeSpec

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB, LAYERS = 40, 4, 2, 12, 56, 61, 2
THETA = 10000.0


@dataclass(frozen=True)
class TinyModel:
    """Weights by name and the attention options of every layer."""

    weights: dict[str, NDArray[np.float32]]
    window: int
    sinks: int
    soft_cap: float
    logit_scale: float = 1.0
    logit_cap: float = 0.0

    def graph(self) -> Graph:
        g = Graph()
        rope = g.add_rope(
            RopeSpec(head_dim=HEAD_DIM, rotary_dim=HEAD_DIM, theta=THETA, scaling={}, max_position_embeddings=512)
        )
        h = g.embed("embed", VOCAB, HIDDEN)
        for i in range(LAYERS):
            x = g.rms_norm(h, f"{i}.norm1", 1e-5)
            q = g.rope(g.linear(x, f"{i}.q_proj", HEADS * HEAD_DIM), rope)
            k = g.rope(g.linear(x, f"{i}.k_proj", KV_HEADS * HEAD_DIM), rope)
            v = g.linear(x, f"{i}.v_proj", KV_HEADS * HEAD_DIM)
            o = g.attention(
                q,
                k,
                v,
                layer=i,
                num_heads=HEADS,
                num_kv_heads=KV_HEADS,
                head_dim=HEAD_DIM,
                scale=0.3,
                window=self.window,
                sinks=self.sinks,
                soft_cap=self.soft_cap,
            )
            h = h + g.linear(o, f"{i}.o_proj", HIDDEN)
            x = g.rms_norm(h, f"{i}.norm2", 1e-5)
            up = g.silu_mul(g.linear(x, f"{i}.gate_proj", FFN), g.linear(x, f"{i}.up_proj", FFN))
            h = h + g.linear(up, f"{i}.down_proj", HIDDEN)
        logits = g.linear(g.rms_norm(h, "norm", 1e-5), "lm_head", VOCAB)
        g.output(g.soft_cap(g.scale(logits, self.logit_scale), self.logit_cap))
        return g


def make_model(rng: np.random.Generator, *, window: int = 0, sinks: int = 0, soft_cap: float = 0.0) -> TinyModel:
    """Random weights in the shapes that the graph names."""
    empty = TinyModel({}, window, sinks, soft_cap)
    weights = {}
    for name, spec in empty.graph().weights.items():
        shape = (spec.rows, spec.cols) if spec.cols else (spec.rows,)
        scale = 0.3 if spec.cols else 0.1
        weights[name] = (rng.standard_normal(shape) * scale + (0 if spec.cols else 1)).astype(np.float32)
    return TinyModel(weights, window, sinks, soft_cap)


def open_runtime(
    model: TinyModel,
    folder: Path,
    *,
    kv_format: str = "f32",
    threads: int = 2,
    batch_tokens: int = 64,
    kv_pages: int = 64,
    context: int = 512,
    isa: str | None = None,
    kv_spill: _core.KVSpill | None = None,
) -> _core.Runtime:
    """Writes the weights to a file and opens them as the loader does."""
    path = folder / "weights.bin"
    store = _core.WeightStore()
    path.write_bytes(b"".join(w.tobytes() for w in model.weights.values()))
    store.add_file(str(path))
    offset = 0
    for name, w in model.weights.items():
        rows, cols = (w.shape[0], w.shape[1]) if w.ndim == 2 else (w.shape[0], 0)
        store.add(name, "f32", rows, cols, [(0, offset, w.nbytes)])
        offset += w.nbytes
    store.load(1)
    return _core.Runtime(
        model.graph().compile_args(),
        store,
        isa=isa or _core.best_isa(),
        threads=threads,
        batch_tokens=batch_tokens,
        context=context,
        kv_format=kv_format,
        kv_budget_bytes=page_bytes(kv_format, is_spilled=kv_spill is not None) * kv_pages,
        kv_spill=kv_spill,
    )


def page_bytes(kv_format: str, *, is_spilled: bool = False) -> int:
    """Bytes of a page; on disk each layer's begin with a sector."""
    layer_bytes = KV_HEADS * _core.kv_page_bytes(kv_format, HEAD_DIM)
    return LAYERS * (-(-layer_bytes // 4096) * 4096 if is_spilled else layer_bytes)


def reference_logits(
    model: TinyModel, tokens: list[int], positions: list[int] | None = None, mask: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """float64 logits of every token; mask[i, j]: token i reads token j (default: causal with window and sinks)."""
    w = {k: v.astype(np.float64) for k, v in model.weights.items()}
    n = len(tokens)
    i, j = np.arange(n)[:, None], np.arange(n)[None, :]
    if mask is None:
        mask = j <= i
        if model.window:
            mask &= (i - j < model.window) | (j < model.sinks)
    h = w["embed.weight"][tokens]
    place = np.arange(n) if positions is None else np.array(positions)
    for layer in range(LAYERS):
        x = _norm(h, w[f"{layer}.norm1.weight"])
        q = _rope((x @ w[f"{layer}.q_proj.weight"].T).reshape(n, HEADS, HEAD_DIM), place)
        k = _rope((x @ w[f"{layer}.k_proj.weight"].T).reshape(n, KV_HEADS, HEAD_DIM), place)
        v = (x @ w[f"{layer}.v_proj.weight"].T).reshape(n, KV_HEADS, HEAD_DIM)
        out = np.empty_like(q)
        for head in range(HEADS):
            s = 0.3 * q[:, head] @ k[:, head // (HEADS // KV_HEADS)].T
            if model.soft_cap:
                s = model.soft_cap * np.tanh(s / model.soft_cap)
            s = np.where(mask, s, -np.inf)
            p = np.exp(s - s.max(axis=1, keepdims=True))
            out[:, head] = p / p.sum(axis=1, keepdims=True) @ v[:, head // (HEADS // KV_HEADS)]
        h = h + out.reshape(n, -1) @ w[f"{layer}.o_proj.weight"].T
        x = _norm(h, w[f"{layer}.norm2.weight"])
        gate = x @ w[f"{layer}.gate_proj.weight"].T
        h = h + (gate / (1 + np.exp(-gate)) * (x @ w[f"{layer}.up_proj.weight"].T)) @ w[f"{layer}.down_proj.weight"].T
    return _norm(h, w["norm.weight"]) @ w["lm_head.weight"].T


def _norm(x: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5) * weight


def _rope(x: NDArray[np.float64], positions: NDArray[np.int_]) -> NDArray[np.float64]:
    half = HEAD_DIM // 2
    angle = positions[:, None, None] * THETA ** (-np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=-1)
