"""Blocks of GGUF files: decoded as docs/formats.md says, and as the gguf package decodes them."""

from __future__ import annotations

import numpy as np
import pytest

from edgert.quant import format as formats

GGML = ["q8_0", "q4_0", "q4_k", "q6_k"]


def scalar_block(name: str, b: np.ndarray) -> list[float]:
    """One block, column by column, in float32 without fma."""
    f16 = lambda at: np.float32(b[at : at + 2].view(np.float16)[0])  # noqa: E731
    if name == "q8_0":
        return [f16(0) * np.float32(np.int8(b[2 + i])) for i in range(32)]
    if name == "q4_0":
        return [f16(0) * np.float32(int(b[2 + i % 16] >> 4 if i >= 16 else b[2 + i] & 15) - 8) for i in range(32)]
    if name == "q4_k":
        return [scalar_q4_k(b, i, f16) for i in range(256)]
    values = []
    for column in range(256):
        n, k, i = column // 128, column % 128 // 32, column % 32
        low = int(b[64 * n + 32 * (k & 1) + i]) >> (4 if k >= 2 else 0) & 15
        high = int(b[128 + 32 * n + i]) >> (2 * k) & 3
        scale = f16(208) * np.float32(np.int8(b[192 + column // 16]))
        values.append(scale * np.float32(low + 16 * high - 32))
    return values


def scalar_q4_k(b: np.ndarray, column: int, f16) -> float:
    s = [int(v) for v in b[4:16]]
    i = column // 32
    if i < 4:
        sc, m = s[i] & 63, s[i + 4] & 63
    else:
        sc, m = (s[i + 4] & 15) | (s[i - 4] >> 6 << 4), (s[i + 4] >> 4) | (s[i] >> 6 << 4)
    q = int(b[16 + 32 * (column // 64) + column % 32]) >> (4 if i % 2 else 0) & 15
    return f16(0) * np.float32(sc) * np.float32(q) - f16(2) * np.float32(m)


@pytest.mark.parametrize("name", GGML)
def test_blocks_decode_column_by_column(name, rng, random_blocks):
    made = formats.get(name)
    cols = 2 * made.spec.block_columns
    raw = random_blocks(name, 3, cols, rng)
    found = made.dequantize(made.decode(raw, cols))
    for row in range(3):
        blocks = raw[row].reshape(2, -1)
        assert found[row].tolist() == [float(v) for block in blocks for v in scalar_block(name, block)]


@pytest.mark.parametrize("name", GGML)
def test_blocks_decode_as_the_gguf_package_does(name, rng, random_blocks):
    quants = pytest.importorskip("gguf.quants", reason="the gguf package is not installed")
    from gguf import GGMLQuantizationType

    made = formats.get(name)
    raw = random_blocks(name, 5, 768, rng)
    expected = quants.dequantize(raw, GGMLQuantizationType[name.upper()])
    assert np.array_equal(made.dequantize(made.decode(raw, 768)), expected)
