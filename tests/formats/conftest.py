"""Random matrices in every format, from a seed that is printed."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest

from edgert.quant import format as formats
from edgert.quant.float_bits import round_to_bf16
from edgert.quant.format import Quantized

SEED = int(os.environ.get("EDGERT_TEST_SEED", "1"))

# Where a block has its f16 scales and minima (mxfp4 has none, but an exponent in its first byte).
SCALE_PLACES = {
    "q8_0": (0,), "q4_0": (0,), "q4_1": (0, 2), "q5_0": (0,), "q5_1": (0, 2), "q2_k": (80, 82), "q3_k": (108,),
    "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,), "iq4_nl": (0,), "iq4_xs": (0,), "mxfp4": (), "tq1_0": (52,),
    "tq2_0": (64,),
}  # fmt: skip

RandomMatrix = Callable[[str, int, int, np.random.Generator], Quantized]
RandomBlocks = Callable[[str, int, int, np.random.Generator], np.ndarray]


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Seeded by EDGERT_TEST_SEED; the seed is shown when a test fails."""
    print(f"EDGERT_TEST_SEED={SEED} {request.node.nodeid}")
    return np.random.default_rng(SEED)


@pytest.fixture
def random_blocks() -> RandomBlocks:
    """File bytes uint8 [rows, row_bytes]: any codes and sub-scales, finite f16 scales."""
    return make_blocks


@pytest.fixture
def random_matrix() -> RandomMatrix:
    """Codes over their whole range and finite scales of both signs."""
    return make_matrix


def make_blocks(name: str, rows: int, cols: int, rng: np.random.Generator) -> np.ndarray:
    spec = formats.get(name).spec
    raw = rng.integers(0, 256, (rows, formats.row_bytes(spec, cols)), dtype=np.uint8)
    if name == "f16":
        return rng.standard_normal((rows, cols)).astype(np.float16).view(np.uint8)
    if name == "f32":
        return rng.standard_normal((rows, cols)).astype(np.float32).view(np.uint8)
    if name == "bf16":
        return (
            (rng.standard_normal((rows, cols)).astype(np.float32).view(np.uint32) >> 16)
            .astype(np.uint16)
            .view(np.uint8)
        )
    blocks = raw.reshape(rows, -1, spec.block_bytes)
    if name == "mxfp4":
        blocks[:, :, 0] = rng.integers(112, 128, blocks.shape[:2])
    for place in SCALE_PLACES[name]:
        scales = (rng.standard_normal(blocks.shape[:2]) * 0.05).astype(np.float16)
        blocks[:, :, place : place + 2] = scales[:, :, None].view(np.uint8)
    return raw


def make_matrix(name: str, rows: int, cols: int, rng: np.random.Generator) -> Quantized:
    made = formats.get(name)
    if made.spec.block_columns or made.spec.is_float:
        return made.decode(make_blocks(name, rows, cols, rng), cols)
    scale = round_to_bf16((rng.standard_normal((rows, -(-cols // 64))) * 0.05).astype(np.float32))
    if name == "p8":
        return Quantized(rng.integers(-127, 128, (rows, cols), dtype=np.int8), (scale,))
    bits = int(name[1:])
    tables = (rng.integers(-128, 128, (1, 32), dtype=np.int8),) if name.startswith("c") else ()
    return Quantized(rng.integers(0, 1 << bits, (rows, cols), dtype=np.uint8), (scale, *tables))
