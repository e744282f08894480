"""Blocks of GGUF files: decoded as docs/formats.md says, and as the gguf package decodes them."""

from __future__ import annotations

import numpy as np
import pytest

from edgert.quant import format as formats

GGML = [
    "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4",
    "tq1_0", "tq2_0",
]  # fmt: skip
# Of iq4_nl and iq4_xs, as the gguf package lists them; of mxfp4, as the OCP standard does.
UNEVEN = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def scalar_block(name: str, b: np.ndarray) -> list[float]:
    """One block, column by column, in float32 without fma."""
    f16 = lambda at: np.float32(b[at : at + 2].view(np.float16)[0])  # noqa: E731
    if name == "q8_0":
        return [f16(0) * np.float32(np.int8(b[2 + i])) for i in range(32)]
    if name in ("q4_0", "q4_1", "q5_0", "q5_1"):
        return [scalar_nibble(name, b, i, f16) for i in range(32)]
    if name in ("iq4_nl", "mxfp4"):
        codes = [int(b[len(b) - 16 + i % 16]) >> (4 if i >= 16 else 0) & 15 for i in range(32)]
        if name == "iq4_nl":
            return [f16(0) * np.float32(UNEVEN[q]) for q in codes]
        return [np.float32(2.0 ** (int(b[0]) - 127) * E2M1[q]) for q in codes]
    if name == "iq4_xs":
        return [scalar_iq4_xs(b, i, f16) for i in range(256)]
    if name in ("tq1_0", "tq2_0"):
        return [scalar_ternary(name, b, i, f16) for i in range(256)]
    if name in ("q4_k", "q5_k"):
        return [scalar_super_min(name, b, i, f16) for i in range(256)]
    if name == "q2_k":
        return [scalar_q2_k(b, i, f16) for i in range(256)]
    if name == "q3_k":
        return [scalar_q3_k(b, i, f16) for i in range(256)]
    values = []
    for column in range(256):
        n, k, i = column // 128, column % 128 // 32, column % 32
        low = int(b[64 * n + 32 * (k & 1) + i]) >> (4 if k >= 2 else 0) & 15
        high = int(b[128 + 32 * n + i]) >> (2 * k) & 3
        scale = f16(208) * np.float32(np.int8(b[192 + column // 16]))
        values.append(scale * np.float32(low + 16 * high - 32))
    return values


def scalar_nibble(name: str, b: np.ndarray, column: int, f16) -> float:
    minimum = f16(2) if name.endswith("_1") else None
    at = 2 if minimum is None else 4
    q = int(b[len(b) - 16 + column % 16]) >> (4 if column >= 16 else 0) & 15
    if name.startswith("q5"):
        q += 16 * (int.from_bytes(b[at : at + 4].tobytes(), "little") >> column & 1)
    if minimum is None:
        return f16(0) * np.float32(q - (16 if name.startswith("q5") else 8))
    return f16(0) * np.float32(q) + minimum


def scalar_q2_k(b: np.ndarray, column: int, f16) -> float:
    n, k, i = column // 128, column % 128 // 32, column % 32
    q, sub = int(b[16 + 32 * n + i]) >> (2 * k) & 3, int(b[column // 16])
    return f16(80) * np.float32(sub & 15) * np.float32(q) - f16(82) * np.float32(sub >> 4)


def scalar_q3_k(b: np.ndarray, column: int, f16) -> float:
    n, k, i = column // 128, column % 128 // 32, column % 32
    q = (int(b[32 + 32 * n + i]) >> (2 * k) & 3) + 4 * (int(b[i]) >> (column // 32) & 1)
    run = column // 16
    low, high = int(b[96 + run % 8]) >> (4 * (run // 8)) & 15, int(b[104 + run % 4]) >> (2 * (run // 4)) & 3
    return f16(108) * np.float32(low + 16 * high - 32) * np.float32(q - 4)


def scalar_super_min(name: str, b: np.ndarray, column: int, f16) -> float:
    s = [int(v) for v in b[4:16]]
    i = column // 32
    if i < 4:
        sc, m = s[i] & 63, s[i + 4] & 63
    else:
        sc, m = (s[i + 4] & 15) | (s[i - 4] >> 6 << 4), (s[i + 4] >> 4) | (s[i] >> 6 << 4)
    q = int(b[len(b) - 128 + 32 * (column // 64) + column % 32]) >> (4 if i % 2 else 0) & 15
    if name == "q5_k":
        q += 16 * (int(b[16 + column % 32]) >> i & 1)
    return f16(0) * np.float32(sc) * np.float32(q) - f16(2) * np.float32(m)


def scalar_iq4_xs(b: np.ndarray, column: int, f16) -> float:
    run = column // 32
    q = int(b[8 + 16 * run + column % 16]) >> (4 if column % 32 >= 16 else 0) & 15
    high = int.from_bytes(b[2:4].tobytes(), "little") >> (2 * run) & 3
    low = int(b[4 + run // 2]) >> (4 * (run % 2)) & 15
    return f16(0) * np.float32(low + 16 * high - 32) * np.float32(UNEVEN[q])


def scalar_ternary(name: str, b: np.ndarray, column: int, f16) -> float:
    if name == "tq2_0":
        n, k, i = column // 128, column % 128 // 32, column % 32
        return f16(64) * np.float32((int(b[32 * n + i]) >> (2 * k) & 3) - 1)
    first, at, width = next(run for run in ((240, 48, 4), (160, 32, 16), (0, 0, 32)) if column >= run[0])
    digit, byte = divmod(column - first, width)
    # The digit of byte / 256 in base 3, by whole numbers.
    q = int(b[at + byte]) * 3 ** (digit + 1) // 256 % 3
    return f16(52) * np.float32(q - 1)


@pytest.mark.parametrize("name", GGML)
def test_blocks_decode_column_by_column(name, rng, random_blocks):
    made = formats.get(name)
    cols = 2 * made.spec.block_columns
    raw = random_blocks(name, 3, cols, rng)
    found = made.dequantize(made.decode(raw, cols))
    for row in range(3):
        blocks = raw[row].reshape(2, -1)
        assert found[row].tolist() == [float(v) for block in blocks for v in scalar_block(name, block)]


def test_blocks_worked_by_hand():
    """One weight of a block is set; d is 2, the minimum 3 (f16 0x4000 and 0x4200)."""
    q4_1 = np.zeros(20, np.uint8)
    q4_1[1], q4_1[3], q4_1[4 + 5] = 0x40, 0x42, 0x70  # high nibble of byte 5: column 21 has code 7
    assert dequantised("q4_1", q4_1) == {21: 17.0, "else": 3.0}
    q5_0 = np.zeros(22, np.uint8)
    q5_0[1], q5_0[2 + 2], q5_0[6 + 1] = 0x40, 0x02, 0x90  # bit 17 and a high nibble of byte 1: column 17 has 16 + 9
    assert dequantised("q5_0", q5_0) == {17: 18.0, "else": -32.0}
    q5_1 = np.zeros(24, np.uint8)
    q5_1[1], q5_1[3], q5_1[4 + 3] = 0x40, 0x42, 0x80  # bit 31: column 31 has code 16
    assert dequantised("q5_1", q5_1) == {31: 35.0, "else": 3.0}
    q2_k = np.zeros(84, np.uint8)
    q2_k[81], q2_k[:16], q2_k[16 + 32 + 4] = 0x40, 0x05, 0xC0  # sc 5; byte 4 of the second half: column 128 + 96 + 4
    assert dequantised("q2_k", q2_k) == {228: 30.0, "else": 0.0}
    q3_k = np.zeros(110, np.uint8)
    q3_k[109], q3_k[96:104], q3_k[104:108] = 0x40, 0x11, 0xAA  # sc = 1 + 16 * 2 - 32
    q3_k[32 + 7], q3_k[7] = 0x0C, 0x02  # bit pair 1 and third bit 1 of byte 7: column 39 has 3 + 4
    assert dequantised("q3_k", q3_k) == {39: 6.0, "else": -8.0}
    q5_k = np.zeros(176, np.uint8)
    q5_k[1], q5_k[4:8], q5_k[12:16] = 0x40, 0x01, 0x01  # every sc is 1
    q5_k[16 + 9], q5_k[48 + 32 + 9] = 0x08, 0xF0  # fifth bit 3 and the high nibble of byte 41: column 96 + 9 has 31
    assert dequantised("q5_k", q5_k) == {105: 62.0, "else": 0.0}
    iq4_nl = np.full(18, 0x88, np.uint8)  # code 8 stands for 1
    iq4_nl[:2], iq4_nl[2 + 5] = (0x00, 0x40), 0xF8  # high nibble of byte 5: column 21 has the last value, 113
    assert dequantised("iq4_nl", iq4_nl) == {21: 226.0, "else": 2.0}
    iq4_xs = np.full(136, 0x88, np.uint8)
    iq4_xs[:4], iq4_xs[4:8] = (0x00, 0x40, 0xAA, 0xAA), 0x33  # sc = 3 + 16 * 2 - 32
    iq4_xs[8 + 16 + 1] = 0x08  # high nibble of byte 1 of the second run: column 32 + 17 has the first value, -127
    assert dequantised("iq4_xs", iq4_xs) == {49: -762.0, "else": 6.0}
    mxfp4 = np.zeros(17, np.uint8)
    mxfp4[0], mxfp4[1 + 3] = 128, 0x7D  # scale 2: column 3 has -3, column 19 has 6
    assert dequantised("mxfp4", mxfp4) == {3: -6.0, 19: 12.0, "else": 0.0}
    tq1_0 = np.full(54, 128, np.uint8)  # 256 / 2: every digit is 1
    tq1_0[52:], tq1_0[7], tq1_0[48 + 2] = (0x00, 0x40), 121, 200  # 0.11020 and 0.2100 in base 3
    assert dequantised("tq1_0", tq1_0) == {71: -2.0, 103: 2.0, 135: -2.0, 242: 2.0, 250: -2.0, 254: -2.0, "else": 0.0}
    tq2_0 = np.full(66, 0x55, np.uint8)
    tq2_0[64:], tq2_0[32 + 6] = (
        (0x00, 0x40),
        0x15,
    )  # the last two bits of byte 6 of the second half: column 128 + 96 + 6
    assert dequantised("tq2_0", tq2_0) == {230: -2.0, "else": 0.0}


def dequantised(name: str, block: np.ndarray) -> dict[int | str, float]:
    """The columns whose value is not the most frequent one, and that one as "else"."""
    made = formats.get(name)
    row = made.dequantize(made.decode(block.reshape(1, -1), made.spec.block_columns))[0]
    values, counts = np.unique(row, return_counts=True)
    usual = values[counts.argmax()]
    return {column: float(v) for column, v in enumerate(row) if v != usual} | {"else": float(usual)}


@pytest.mark.parametrize("name", GGML)
def test_blocks_decode_as_the_gguf_package_does(name, rng, random_blocks):
    quants = pytest.importorskip("gguf.quants", reason="the gguf package is not installed")
    from gguf import GGMLQuantizationType

    made = formats.get(name)
    raw = random_blocks(name, 5, 768, rng)
    expected = quants.dequantize(raw, GGMLQuantizationType[name.upper()])
    assert np.array_equal(made.dequantize(made.decode(raw, 768)), expected)
