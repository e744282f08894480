"""Weights and inputs for the kernels: random, odd in shape, and at the extremes of what a byte may hold."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from edgert import _core

SEED = int(os.environ.get("EDGERT_TEST_SEED", "1"))
FLOAT_FORMATS = ("f32", "f16", "bf16")
# Parts that hold 16-bit numbers: bf16 for p and c formats, f16 for ggml's.
SCALE_PARTS = ("scale", "superscale", "minimum")

F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix in the layout of the kernels."""

    format: str
    rows: int
    cols: int
    parts: list[NDArray[np.uint8]]


MakeWeight = Callable[..., Weight]


def supported_levels() -> list[str]:
    """Every level of this machine but scalar, which the others are compared with."""
    return [
        name for name, is_built, is_supported in _core.isa_levels() if is_built and is_supported and name != "scalar"
    ]


def _scales(format_name: str, num_bytes: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    values = (rng.standard_normal(num_bytes // 2) * 0.05).astype(np.float32)
    if format_name[0] in "pc":
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return values.astype(np.float16).view(np.uint8)


def make_weight(format_name: str, rows: int, cols: int, rng: np.random.Generator, *, fill: int | None = None) -> Weight:
    """Random parts (any byte is a valid code); `fill`: every byte of a code is this one."""
    if format_name in FLOAT_FORMATS:
        values = rng.standard_normal((rows, cols)).astype(np.float32)
        if format_name == "f16":
            raw = values.astype(np.float16).view(np.uint8)
        else:
            raw = (
                values.view(np.uint8)
                if format_name == "f32"
                else (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
            )
        return Weight(format_name, rows, cols, [np.ascontiguousarray(raw).reshape(-1)])
    parts = []
    for name, num_bytes in _core.part_bytes(format_name, rows, cols):
        if name in SCALE_PARTS:
            parts.append(_scales(format_name, num_bytes, rng))
        elif name == "exponent":
            parts.append(rng.integers(112, 128, num_bytes, dtype=np.uint8))
        elif name in ("subscale", "submin"):
            high = 64 if format_name in ("q4_k", "q5_k") else 256
            parts.append(rng.integers(0, high, num_bytes, dtype=np.uint8))
        elif fill is not None:
            parts.append(np.full(num_bytes, fill, np.uint8))
        else:
            parts.append(rng.integers(0, 256, num_bytes, dtype=np.uint8))
    return Weight(format_name, rows, cols, parts)


def multiply(isa: str, weight: Weight, x: F32, bias: F32 | None = None) -> F32:
    return np.asarray(_core.linear(isa, weight.format, weight.rows, weight.cols, weight.parts, x, bias))


def same_bits(a: F32, b: F32) -> bool:
    """Equal as bits: -0 is not 0."""
    return a.shape == b.shape and bool(np.array_equal(a.view(np.uint32), b.view(np.uint32)))


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Seeded by EDGERT_TEST_SEED; the seed is shown when a test fails."""
    print(f"EDGERT_TEST_SEED={SEED} {request.node.nodeid}")
    return np.random.default_rng(SEED)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`isa` runs over the levels of this machine, `weight_format` over the formats of the core."""
    if "isa" in metafunc.fixturenames:
        metafunc.parametrize("isa", supported_levels())
    if "weight_format" in metafunc.fixturenames:
        metafunc.parametrize("weight_format", _core.format_names())
    if "quantized_format" in metafunc.fixturenames:
        names = [name for name in _core.format_names() if name not in FLOAT_FORMATS]
        metafunc.parametrize("quantized_format", names)


@pytest.fixture
def weights() -> MakeWeight:
    return make_weight


@pytest.fixture
def product() -> Callable[..., F32]:
    return multiply


@pytest.fixture
def equal_bits() -> Callable[[F32, F32], bool]:
    return same_bits
