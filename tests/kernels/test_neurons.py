"""Products that read only the columns of active neurons: the bits of the product with all columns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from seeds import draw_rng

from edgert import _core
from edgert.quant import format as formats
from edgert.quant import neurons

NAMES = [f"p{bits}" for bits in range(2, 9)] + ["c2", "c3", "c4"]
# With an empty last strip or group, a matrix of one column, one of many groups.
SHAPES = [(16, 64), (5, 17), (33, 200), (48, 1100), (1, 1), (70, 320)]
TOKENS = (1, 2, 5, 21, 70)


def dense_parts(name: str, rows: int, cols: int, rng: np.random.Generator, *, fill: int | None = None) -> list:
    """Parts of random codes; scales of both signs, and tables of any values."""
    parts = []
    for part, num_bytes in _core.part_bytes(name, rows, cols):
        if part == "scale":
            scales = (rng.standard_normal(num_bytes // 2) * 0.05).astype(np.float32)
            parts.append((scales.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8))
        elif fill is None or part == "table":
            parts.append(rng.integers(0, 256, num_bytes, dtype=np.uint8))
        else:
            parts.append(np.full(num_bytes, fill, np.uint8))
    return parts


def records_of(name: str, parts: list, rows: int, cols: int) -> np.ndarray:
    """What the format says that the codes are, column by column."""
    codes = formats.get(name).unpack(parts, rows, cols).codes.view(np.uint8)
    return np.ascontiguousarray(neurons.pack(codes, neurons.code_bits(name)).reshape(-1))


def inputs(tokens: int, cols: int, rng: np.random.Generator) -> np.ndarray:
    """Mostly 0, and some groups wholly; a first token of zeros where there are others."""
    x = rng.standard_normal((tokens, cols)).astype(np.float32)
    x[rng.random((tokens, cols)) < rng.random()] = 0
    for group in range(0, cols, 64):
        if rng.random() < 0.2:
            x[:, group : group + 64] = 0
    if tokens > 1:
        x[0] = 0
    return x


def levels() -> list[str]:
    return [name for name, is_built, is_supported in _core.isa_levels() if is_built and is_supported]


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", NAMES)
def test_bits_of_the_whole_product(name: str, level: str, equal_bits: Callable) -> None:
    rng = draw_rng()
    for rows, cols in SHAPES:
        parts = dense_parts(name, rows, cols, rng)
        records = records_of(name, parts, rows, cols)
        scales = parts[: 2 if name[0] == "c" else 1]
        groups = -(-cols // 64)
        bias = rng.standard_normal(rows).astype(np.float32)
        outliers = [([int(rng.integers(cols))], [0.5]) for _ in range(rows)]
        for tokens in TOKENS:
            x = inputs(tokens, cols, rng)
            bounds = [0, *(int(b) for b in range(1, groups) if rng.random() < 0.3)]
            args = (level, name, rows, cols)
            bits = neurons.code_bits(name)
            expected = np.asarray(_core.linear(*args, parts, x, bias, outliers))
            found = np.asarray(_core.linear_neurons(*args, scales, records, bits, x, bias, outliers, bounds))
            assert equal_bits(found, expected), (rows, cols, tokens, bounds)
            expected = np.asarray(_core.linear("scalar", name, rows, cols, parts, x))
            assert equal_bits(np.asarray(_core.linear_neurons(*args, scales, records, bits, x)), expected)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fill", [0x00, 0xFF, 0x80, 0x7F, 0x81])
def test_extreme_codes_do_not_saturate(name: str, level: str, fill: int, equal_bits: Callable) -> None:
    rng = draw_rng()
    rows, cols = 16, 512
    parts = dense_parts(name, rows, cols, rng, fill=fill)
    records = records_of(name, parts, rows, cols)
    scales = parts[: 2 if name[0] == "c" else 1]
    signs = np.where(rng.random((3, cols)) < 0.5, -1.0, 1.0)
    for x in (np.ones((3, cols)), -np.ones((3, cols)), signs):
        x = x.astype(np.float32)  # every activation becomes 127 or -127
        found = np.asarray(_core.linear_neurons(level, name, rows, cols, scales, records, neurons.code_bits(name), x))
        assert equal_bits(found, np.asarray(_core.linear("scalar", name, rows, cols, parts, x)))


@pytest.mark.parametrize(("name", "narrow"), [("p4", "p2"), ("p7", "p3"), ("p5", "p4"), ("c4", "c2"), ("c3", "c2")])
def test_fewer_bits_than_the_records_have(name: str, narrow: str, equal_bits: Callable) -> None:
    rng = draw_rng()
    rows, cols = 33, 200
    parts = dense_parts(name, rows, cols, rng)
    records = records_of(name, parts, rows, cols)
    view = parts[: len(formats.get(narrow).spec.parts)]
    scales = parts[: 2 if name[0] == "c" else 1]
    x = inputs(3, cols, rng)
    for level in levels():
        found = _core.linear_neurons(level, narrow, rows, cols, scales, records, neurons.code_bits(name), x)
        assert equal_bits(np.asarray(found), np.asarray(_core.linear("scalar", narrow, rows, cols, view, x)))


def test_a_group_of_zeros_keeps_a_scale_that_is_infinite() -> None:
    rng = draw_rng()
    rows, cols = 16, 128
    parts = dense_parts("p4", rows, cols, rng)
    parts[0].view(np.uint16)[3] = 0x7F80  # row 3, group 0
    x = inputs(1, cols, rng)
    x[0, :64], x[0, 64:] = 0, 1
    records = records_of("p4", parts, rows, cols)
    found = np.asarray(_core.linear_neurons("scalar", "p4", rows, cols, parts[:1], records, 4, x))
    expected = np.asarray(_core.linear("scalar", "p4", rows, cols, parts, x))
    assert np.isnan(expected[0, 3])
    assert np.array_equal(found, expected, equal_nan=True)


@pytest.mark.parametrize("bits", range(1, 9))
def test_records_hold_the_codes(bits: int) -> None:
    """Bit by bit, as docs/formats.md says it."""
    rng = draw_rng()
    rows, cols = 37, 5
    codes = rng.integers(0, 1 << bits, (rows, cols), dtype=np.uint8)
    packed = neurons.pack(codes, bits).reshape(cols, 3, 2 * bits)
    for row, column in np.ndindex(rows, cols):
        strip, lane = packed[column, row // 16], row % 16
        value, at = 0, 0
        for k in (8, 4, 2, 1):
            if bits & k:
                value = value << k | (int(strip[at + lane % (2 * k)]) >> (lane // (2 * k) * k)) & ((1 << k) - 1)
                at += 2 * k
        assert value == codes[row, column], (row, column)
    assert np.array_equal(neurons.unpack(packed.reshape(-1), bits, rows, cols), codes)
