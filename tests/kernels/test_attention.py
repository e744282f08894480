"""Attention: every level equals scalar bit by bit, and scalar is close to numpy, for odd heads and masks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from edgert import _core

MAX_ROWS = 48


def read_q8_0(x: np.ndarray) -> np.ndarray:
    """What a q8_0 cache gives back for the vectors x [n, head_dim]: docs/numerics.md, section 5."""
    out = np.empty_like(x)
    for begin in range(0, x.shape[1], 32):
        run = x[:, begin : begin + 32]
        largest = np.abs(run).max(axis=1, keepdims=True)
        with np.errstate(divide="ignore"):
            inverse = np.where(largest > 0, np.float32(127) / largest, np.float32(0))
        scale = (largest / np.float32(127)).astype(np.float16).astype(np.float32)
        out[:, begin : begin + 32] = np.rint(run * inverse) * scale
    return out


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
@pytest.mark.parametrize("kv_format", _core.kv_format_names())
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
        (7, 96, 200, 0.0),
        (MAX_ROWS, 40, 129, 0.0),
        (29, 64, 192, 9.0),
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


@pytest.mark.parametrize("kv_format", _core.kv_format_names())
def test_rows_do_not_depend_on_each_other(
    isa: str, kv_format: str, rng: np.random.Generator, equal_bits: Callable
) -> None:
    q, k, v, mask = make_task(rng, MAX_ROWS, 64, 200, "causal")
    together, _ = _core.attention(isa, q, k, v, mask, 0.125, 0.0, kv_format)
    for rows in (1, 2, 3, 8, 13):
        first = int(rng.integers(0, MAX_ROWS - rows))
        some = slice(first, first + rows)
        alone, _ = _core.attention(isa, q[some], k, v, mask[some], 0.125, 0.0, kv_format)
        assert equal_bits(alone, together[some]), rows


@pytest.mark.parametrize("head_dim", [20, 32, 64, 80, 256])
def test_q8_0_is_f32_of_the_rounded_vectors(head_dim: int, rng: np.random.Generator, equal_bits: Callable) -> None:
    q, k, v, mask = make_task(rng, 5, head_dim, 150, "causal")
    k[3], v[4, :32] = 0, 0
    k[:, 7] *= 60
    rounded, rounded_sum = _core.attention("scalar", q, k, v, mask, 0.1, 0.0, "q8_0")
    expected, expected_sum = _core.attention("scalar", q, read_q8_0(k), read_q8_0(v), mask, 0.1, 0.0, "f32")
    assert equal_bits(rounded, expected) and equal_bits(rounded_sum, expected_sum)


@pytest.mark.parametrize("kv_format", _core.kv_format_names())
@pytest.mark.parametrize("mask_kind", ["full", "causal", "random", "window"])
def test_pages_done_apart_and_merged_are_the_same(
    kv_format: str, mask_kind: str, rng: np.random.Generator, equal_bits: Callable
) -> None:
    for isa in ("scalar", _core.best_isa()):
        for rows, head_dim, positions in [(1, 64, 500), (4, 24, 640), (20, 80, 130)]:
            q, k, v, mask = make_task(rng, rows, head_dim, positions, mask_kind)
            mask[0, :64] = False
            mask[-1] = False
            task = (isa, q, k, v, mask, 0.2, 0.0, kv_format)
            whole, whole_sum = _core.attention(*task)
            merged, merged_sum = _core.attention(*task, by_parts=True)
            assert equal_bits(merged, whole) and equal_bits(merged_sum, whole_sum), (isa, rows, head_dim)


def test_an_unknown_format_is_refused(rng: np.random.Generator) -> None:
    q, k, v, mask = make_task(rng, 1, 16, 3, "full")
    with pytest.raises(_core.CoreError, match="kv_format: found 'q4', expected one of: f32, f16, q8_0"):
        _core.attention("scalar", q, k, v, mask, 1.0, 0.0, "q4")
