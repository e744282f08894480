"""Attention: every level equals scalar bit by bit, and scalar is close to numpy, for odd heads and masks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from edgert import _core


def make_task(
    rng: np.random.Generator, rows: int, head_dim: int, positions: int, mask_kind: str
) -> tuple[np.ndarray, ...]:
    q = rng.standard_normal((rows, head_dim)).astype(np.float32)
    k = rng.standard_normal((positions, head_dim)).astype(np.float32)
    v = rng.standard_normal((positions, head_dim)).astype(np.float32)
    mask = np.ones((rows, positions), bool)
    if mask_kind == "causal":
        mask = np.arange(positions)[None, :] <= (positions - rows + np.arange(rows))[:, None]
    elif mask_kind == "random":
        mask = rng.random((rows, positions)) < 0.4
    elif mask_kind == "window":
        mask[:, 4 : max(4, positions - 20)] = False
    return q, k, v, mask


def reference(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray, scale: float, soft_cap: float
) -> tuple[np.ndarray, np.ndarray]:
    scores = q.astype(np.float64) @ k.astype(np.float64).T * scale
    if soft_cap:
        scores = soft_cap * np.tanh(scores / soft_cap)
    scores = np.where(mask, scores, -np.inf)
    top = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        out = np.where(total > 0, weights @ v.astype(np.float64) / total, 0)
        return out, (top + np.log(total))[:, 0]


@pytest.mark.parametrize("mask_kind", ["full", "causal", "random", "window"])
@pytest.mark.parametrize("kv_format", ["f32", "f16"])
def test_every_level_equals_scalar(
    isa: str, kv_format: str, mask_kind: str, rng: np.random.Generator, equal_bits: Callable
) -> None:
    for rows, head_dim, positions, soft_cap in [
        (1, 64, 1, 0.0),
        (1, 24, 200, 0.0),
        (3, 80, 130, 30.0),
        (8, 128, 300, 0.0),
        (5, 20, 64, 5.0),
        (2, 256, 65, 0.0),
    ]:
        q, k, v, mask = make_task(rng, rows, head_dim, positions, mask_kind)
        scale = float(head_dim**-0.5)
        out, log_sum = _core.attention(isa, q, k, v, mask, scale, soft_cap, kv_format)
        expected, expected_sum = _core.attention("scalar", q, k, v, mask, scale, soft_cap, kv_format)
        assert equal_bits(out, expected) and equal_bits(log_sum, expected_sum), (rows, head_dim, positions)


@pytest.mark.parametrize("mask_kind", ["full", "causal", "random", "window"])
def test_close_to_numpy(mask_kind: str, rng: np.random.Generator) -> None:
    for rows, head_dim, positions, soft_cap in [(4, 64, 300, 0.0), (3, 24, 70, 4.0)]:
        q, k, v, mask = make_task(rng, rows, head_dim, positions, mask_kind)
        mask[0] = False
        out, log_sum = _core.attention("scalar", q, k, v, mask, 0.3, soft_cap, "f32")
        expected, expected_sum = reference(q, k, v, mask, 0.3, soft_cap)
        np.testing.assert_allclose(out, expected, rtol=2e-5, atol=2e-6)
        np.testing.assert_allclose(log_sum, expected_sum, rtol=2e-6)


def test_rows_do_not_depend_on_each_other(isa: str, rng: np.random.Generator, equal_bits: Callable) -> None:
    q, k, v, mask = make_task(rng, 8, 64, 200, "causal")
    together, _ = _core.attention(isa, q, k, v, mask, 0.125, 0.0, "f16")
    for row in range(8):
        alone, _ = _core.attention(isa, q[row : row + 1], k, v, mask[row : row + 1], 0.125, 0.0, "f16")
        assert equal_bits(alone, together[row : row + 1])
