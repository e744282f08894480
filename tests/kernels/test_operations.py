"""The float operations: every level equals scalar bit by bit, and scalar is close to numpy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from edgert import _core

SIZES = (1, 3, 15, 16, 17, 64, 100, 1000)


def special_values() -> np.ndarray:
    values = [
        0.0,
        -0.0,
        1e-45,
        -1e-40,
        1e-38,
        88.0,
        89.0,
        -87.0,
        -87.1,
        100.0,
        -100.0,
        1e30,
        -1e30,
        3.4e38,
        0.4,
        -0.39999,
    ]
    return np.array(values, np.float32)


def inputs(rng: np.random.Generator, size: int) -> np.ndarray:
    x = (rng.standard_normal(size) * np.exp(rng.uniform(-8, 4, size))).astype(np.float32)
    special = special_values()
    x[: min(size // 4, len(special))] = special[: size // 4]
    return x


def test_elementwise(isa: str, rng: np.random.Generator, equal_bits: Callable) -> None:
    for size in SIZES:
        a, b = inputs(rng, size), inputs(rng, size)
        for name, arguments in {
            "add": (a, b),
            "silu_mul": (a, b),
            "gelu_mul": (a, b),
            "relu2": (a,),
            "scale": (a, 0.37),
            "soft_cap": (a, 0.9),
            "add_scaled": (1.7, a, b),
            "rms_norm": (np.clip(a, -1e3, 1e3), b, 1e-5),
            "softmax": (np.clip(a, -1e3, 1e3),),
        }.items():
            operation = getattr(_core, name)
            with np.errstate(all="ignore"):
                assert equal_bits(operation(isa, *arguments), operation("scalar", *arguments)), (name, size)
        assert _core.maximum(isa, a) == _core.maximum("scalar", a) == a.max()
        bounded = np.clip(a, -1e3, 1e3)
        assert _core.log_sum_exp(isa, bounded) == _core.log_sum_exp("scalar", bounded)


def test_close_to_numpy(rng: np.random.Generator) -> None:
    a = (rng.standard_normal(4099) * 10).astype(np.float32)
    b = rng.standard_normal(4099).astype(np.float32)
    wide, other = a.astype(np.float64), b.astype(np.float64)
    silu = wide / (1 + np.exp(-wide)) * other
    np.testing.assert_allclose(_core.silu_mul("scalar", a, b), silu, rtol=4e-7, atol=1e-30)
    # The argument of the exponential is rounded to float32, as in the softmax below.
    np.testing.assert_allclose(_core.gelu_mul("scalar", a, b), gelu(wide) * other, rtol=1e-5, atol=1e-36)
    np.testing.assert_allclose(_core.soft_cap("scalar", a, 7.5), 7.5 * np.tanh(wide / 7.5), rtol=4e-7)
    np.testing.assert_allclose(_core.relu2("scalar", a), np.maximum(wide, 0) ** 2, rtol=1e-7)
    exponentials = np.exp(wide - wide.max())
    # x - maximum is rounded to float32: 4e-6 of the exponential at 60. Below exp(-87) the weight is 0.
    np.testing.assert_allclose(_core.softmax("scalar", a), exponentials / exponentials.sum(), rtol=1e-5, atol=1e-37)
    np.testing.assert_allclose(_core.log_sum_exp("scalar", a), wide.max() + np.log(exponentials.sum()), rtol=1e-6)
    norm = wide / np.sqrt((wide**2).mean() + 1e-6) * other
    np.testing.assert_allclose(_core.rms_norm("scalar", a, b, 1e-6), norm, rtol=1e-6)
    np.testing.assert_allclose(_core.rms_norm("scalar", a, b, 1e-6, 1.0), norm / other * (other + 1), rtol=2e-6)


def gelu(x: np.ndarray) -> np.ndarray:
    """The tanh form of Hendrycks and Gimpel 2016 in float64; (1 + tanh u) / 2 is exp(-log(1 + exp(-2 u)))."""
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return x * np.exp(-np.logaddexp(0, -2 * u))


def test_gelu_of_known_points() -> None:
    # x Phi(x) differs from its tanh form by less than 5e-4 everywhere; by 2e-9 at -6, where 1 + tanh would leave none.
    x = np.array([-6, -2, -1, -0.5, 0, 0.5, 1, 2, 6, 20, -20, -1e30, 1e30], np.float32)
    ones = np.ones_like(x)
    found = _core.gelu_mul("scalar", x, ones).astype(np.float64)
    exact = np.array([v * math.erfc(-v / math.sqrt(2)) / 2 for v in x.astype(np.float64)])
    assert np.abs(found - exact)[:-2].max() < 5e-4
    assert -2e-8 < found[-2] <= 0 and found[-1] == np.float32(1e30)
    assert -2e-8 < found[0] < 0


def test_a_soft_cap_leaves_small_values_and_bounds_large_ones() -> None:
    x = np.array([0, 1e-3, -1e-3, 1e30, -1e30, np.nan], np.float32)
    found = _core.soft_cap("scalar", x, 30.0)
    np.testing.assert_allclose(found[:3], x[:3], rtol=1e-6)
    assert (found[3], found[4], np.isnan(found[5])) == (30.0, -30.0, True)


@pytest.mark.parametrize(
    ("heads", "head_dim", "rotary_dim"), [(1, 2, 2), (3, 24, 24), (4, 80, 32), (2, 128, 128), (2, 64, 20)]
)
def test_rope(
    isa: str, heads: int, head_dim: int, rotary_dim: int, rng: np.random.Generator, equal_bits: Callable
) -> None:
    x = rng.standard_normal((heads, head_dim)).astype(np.float32)
    angle = rng.uniform(0, 7, rotary_dim // 2)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    found = _core.rope(isa, x, cos, sin)
    assert equal_bits(found, _core.rope("scalar", x, cos, sin))
    half = rotary_dim // 2
    first, second = x[:, :half], x[:, half:rotary_dim]
    expected = np.concatenate([first * cos - second * sin, second * cos + first * sin, x[:, rotary_dim:]], axis=1)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("scale_columns", [32, 64])
def test_quantize(isa: str, scale_columns: int, rng: np.random.Generator, equal_bits: Callable) -> None:
    for cols in (1, 31, 64, 65, 130, 640):
        x = (rng.standard_normal((5, cols)) * np.exp(rng.uniform(-5, 5, (5, 1)))).astype(np.float32)
        x[1] = 0
        x[2] = rng.integers(-254, 255, cols) / 2  # ties
        x[2, 0] = 127
        x[3] *= np.float32(1e-36)
        codes, scales, sums = _core.quantize(isa, x, scale_columns)
        reference = _core.quantize("scalar", x, scale_columns)
        assert np.array_equal(codes, reference[0]) and np.array_equal(sums, reference[2])
        assert equal_bits(scales, reference[1])
        check_quantized(x, codes, scales, sums, scale_columns)


def check_quantized(x: np.ndarray, codes: np.ndarray, scales: np.ndarray, sums: np.ndarray, scale_columns: int) -> None:
    """docs/numerics.md, section 1, in numpy."""
    padded = np.zeros((len(x), codes.shape[1]), np.float32)
    padded[:, : x.shape[1]] = x
    runs = padded.reshape(len(x), -1, scale_columns)
    amax = np.abs(runs).max(axis=2)
    tiny = amax < np.float32(2.0**-100)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(tiny, np.float32(0), np.float32(127) / amax).astype(np.float32)
    expected = np.clip(np.rint(runs * inverse[:, :, None]), -127, 127)
    assert np.array_equal(codes.reshape(runs.shape), expected.astype(np.int8))
    assert np.array_equal(scales, np.where(tiny, np.float32(0), amax / np.float32(127)))
    wide = codes.astype(np.int32).reshape(len(x), -1, 64)
    assert np.array_equal(sums[:, :, :4], wide.reshape(len(x), -1, 4, 16).sum(axis=3))
    assert np.array_equal(sums[:, :, 4:6], wide.reshape(len(x), -1, 2, 32).sum(axis=3))
    assert np.array_equal(sums[:, :, 7:].view(np.int16), -sums[:, :, 4:6])
    assert np.array_equal(sums[:, :, 6], wide.sum(axis=2))
