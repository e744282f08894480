"""The bytes of the parts, as docs/formats.md says them, one weight at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgert.errors import UnsupportedFormatError
from edgert.quant import format as formats
from edgert.quant.layout import from_quads, pack_bits, to_quads, unpack_bits

PACKED = [name for name in formats.names() if not formats.get(name).spec.is_float]


def code_bits(part: np.ndarray, bits: int, row: int, col: int, groups: int) -> int:
    """Bits of the code of (row, col), read off the text of docs/formats.md section 1."""
    strip, lane, group, quad, byte = row // 16, row % 16, col // 64, col % 64 // 4, col % 4
    per_vector = 8 // bits
    vectors = 16 // per_vector
    offset = ((strip * groups + group) * vectors + quad // per_vector) * 64 + 4 * lane + byte
    return int(part[offset]) >> (bits * (quad % per_vector)) & ((1 << bits) - 1)


@pytest.mark.parametrize("name", ["p2", "p3", "p4", "p5", "p6", "p7", "c2", "c3", "c4"])
def test_nested_codes_put_each_bit_where_the_docs_say(name, rng, random_matrix):
    rows, cols = 19, 130
    matrix = random_matrix(name, rows, cols, rng)
    scale, *code_parts = formats.get(name).pack(matrix)
    field, *planes = code_parts[1:] if name.startswith("c") else code_parts
    groups = 3
    for row in range(rows):
        for col in range(cols):
            q = code_bits(field, 2, row, col, groups)
            for plane in planes:
                q = 2 * q + code_bits(plane, 1, row, col, groups)
            assert q == matrix.codes[row, col]
        for group in range(groups):
            bits = scale.view(np.uint16)[(row // 16 * groups + group) * 16 + row % 16]
            assert np.uint32(int(bits) << 16).view(np.float32) == matrix.scales[0][row, group]


def test_p1_holds_four_columns_of_a_row_side_by_side(rng, random_matrix):
    rows, cols = 19, 130
    matrix = random_matrix("p1", rows, cols, rng)
    scale, packed = formats.get("p1").pack(matrix)
    values = formats.get("p1").dequantize(matrix)
    for row in range(rows):
        for col in range(cols):
            bits = scale.view(np.uint16)[(row // 16 * 3 + col // 64) * 16 + row % 16]
            step = np.uint32(int(bits) << 16).view(np.float32)
            quad = col % 64 // 4
            vector = ((row // 16 * 3 + col // 64) * 2 + quad // 8) * 64
            byte = packed[vector + 16 * (quad % 4) + row % 16]
            assert values[row, col] == (step if byte >> (4 * (quad % 8 // 4) + col % 4) & 1 else -step)


@pytest.mark.parametrize("name", ["c2", "c3", "c4"])
def test_a_codebook_lies_at_the_bytes_of_its_width(name, rng, random_matrix):
    """One part of 32 bytes whatever the shape; a prefix of the parts takes the table of its own width."""
    bits = int(name[1])
    matrix = random_matrix(name, 33, 130, rng)
    parts = formats.get(name).pack(matrix)
    assert len(parts[1]) == 32
    for width in range(2, bits + 1):
        view = formats.get(f"c{width}")
        coarse = view.unpack(parts[: width + 1], 33, 130)
        assert np.array_equal(coarse.codes, matrix.codes >> (bits - width))
        table = parts[1].view(np.int8)[2**width : 2 ** (width + 1)]
        step = np.repeat(matrix.scales[0], 64, axis=1)[:, :130]
        assert np.array_equal(view.dequantize(coarse), step * table[coarse.codes].astype(np.float32))


def test_a_prefix_of_p4_is_a_coarser_tensor(rng, random_matrix):
    matrix = random_matrix("p4", 16, 128, rng)
    parts = formats.get("p4").pack(matrix)
    coarse = formats.get("p2").unpack(parts[:2], 16, 128)
    assert np.array_equal(coarse.codes, matrix.codes >> 2)
    # The centre of the coarse cell, scale * 2^(4 - b), is at most 3 half-steps away.
    fine = formats.get("p4").dequantize(matrix)
    view = 4 * formats.get("p2").dequantize(coarse)
    assert (np.abs(view - fine) <= 3 * np.abs(np.repeat(matrix.scales[0], 64, axis=1)) * 1.0001).all()


def test_bytes_and_nibbles_lie_where_the_docs_say(rng, random_matrix):
    rows, cols, groups = 20, 256, 4
    q8 = random_matrix("q8_0", rows, cols, rng)
    q4 = random_matrix("q4_0", rows, cols, rng)
    q6 = random_matrix("q6_k", rows, cols, rng)
    byte = formats.get("q8_0").pack(q8)[1]
    nibble = formats.get("q4_0").pack(q4)[1]
    low, field = formats.get("q6_k").pack(q6)[2:]
    for row in range(rows):
        for col in range(0, cols, 3):
            assert code_bits(byte, 8, row, col, groups) == int(q8.codes[row, col]) & 255
            assert code_bits(nibble, 4, row, col, groups) == q4.codes[row, col]
            six = code_bits(low, 4, row, col, groups) + 16 * code_bits(field, 2, row, col, groups)
            assert six == q6.codes[row, col]


@pytest.mark.parametrize("name", ["q5_0", "q5_1", "q5_k", "q3_k"])
def test_the_last_bit_lies_in_a_plane(name, rng, random_matrix):
    rows, cols, groups = 20, 256, 4
    matrix = random_matrix(name, rows, cols, rng)
    *_, upper, plane = formats.get(name).pack(matrix)
    upper_bits = 2 if name == "q3_k" else 4
    for row in range(rows):
        for col in range(0, cols, 3):
            q = 2 * code_bits(upper, upper_bits, row, col, groups) + code_bits(plane, 1, row, col, groups)
            assert q == matrix.codes[row, col]


def test_minima_and_halves_of_bytes_lie_where_the_docs_say(rng, random_matrix):
    rows, cols, groups = 20, 512, 8
    q4 = random_matrix("q4_1", rows, cols, rng)
    q2 = random_matrix("q2_k", rows, cols, rng)
    q3 = random_matrix("q3_k", rows, cols, rng)
    minimum = formats.get("q4_1").pack(q4)[1].view(np.float16).reshape(2, groups, 2, 16)
    super2, sub2, field = formats.get("q2_k").pack(q2)
    sub3 = formats.get("q3_k").pack(q3)[1].view(np.int8).reshape(2, groups, 4, 16)
    for row in range(rows):
        strip, lane = divmod(row, 16)
        assert np.array_equal(minimum[strip, :, :, lane].ravel(), q4.scales[1][row])
        assert np.array_equal(super2.view(np.float16).reshape(2, 2, 2, 16)[strip, :, 1, lane], q2.scales[1][row])
        both = sub2.reshape(2, groups, 4, 16)[strip, :, :, lane].ravel()
        assert np.array_equal(both, q2.scales[2][row] + 16 * q2.scales[3][row])
        assert np.array_equal(sub3[strip, :, :, lane].ravel(), q3.scales[1][row])
        assert all(code_bits(field, 2, row, col, groups) == q2.codes[row, col] for col in range(0, cols, 5))


def test_five_codes_lie_in_a_byte(rng, random_matrix):
    rows, cols, blocks = 20, 512, 2
    matrix = random_matrix("tq1_0", rows, cols, rng)
    scale, trit = formats.get("tq1_0").pack(matrix)
    vectors = trit.reshape(2, blocks, 13, 16, 4)
    for row in range(rows):
        strip, lane = divmod(row, 16)
        assert np.array_equal(scale.view(np.float16).reshape(2, blocks, 16)[strip, :, lane], matrix.scales[0][row])
        for col in range(cols):
            block, group, quad, byte = col // 256, col % 256 // 64, col % 64 // 4, col % 4
            if quad == 15:
                found = int(vectors[strip, block, 12, lane, byte]) >> (2 * group) & 3
            else:
                found = int(vectors[strip, block, 3 * group + quad // 5, lane, byte]) * 3 ** (quad % 5 + 1) // 256 % 3
            assert found == matrix.codes[row, col]


def test_scales_lie_where_the_docs_say(rng, random_matrix):
    rows, cols, groups, supers = 20, 512, 8, 2
    q8 = random_matrix("q8_0", rows, cols, rng)
    q4 = random_matrix("q4_k", rows, cols, rng)
    q6 = random_matrix("q6_k", rows, cols, rng)
    scale = formats.get("q8_0").pack(q8)[0].view(np.float16).reshape(2, groups, 2, 16)
    super4, sub4, min4 = formats.get("q4_k").pack(q4)[:3]
    super6, sub6 = formats.get("q6_k").pack(q6)[:2]
    for row in range(rows):
        strip, lane = divmod(row, 16)
        assert np.array_equal(scale[strip, :, :, lane].ravel(), q8.scales[0][row])
        both = super4.view(np.float16).reshape(2, supers, 2, 16)[strip, :, :, lane]
        assert np.array_equal(both[:, 0], q4.scales[0][row]) and np.array_equal(both[:, 1], q4.scales[1][row])
        assert np.array_equal(sub4.reshape(2, groups, 2, 16)[strip, :, :, lane].ravel(), q4.scales[2][row])
        assert np.array_equal(min4.reshape(2, groups, 2, 16)[strip, :, :, lane].ravel(), q4.scales[3][row])
        assert np.array_equal(super6.view(np.float16).reshape(2, supers, 16)[strip, :, lane], q6.scales[0][row])
        assert np.array_equal(
            sub6.view(np.int8).reshape(2, groups, 4, 16)[strip, :, :, lane].ravel(), q6.scales[1][row]
        )


@pytest.mark.parametrize("name", PACKED)
@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 50), blocks=st.integers(1, 5), seed=st.integers(0, 2**32 - 1))
def test_pack_and_unpack_are_inverse(name, rows, blocks, seed):
    from .conftest import make_matrix

    rng = np.random.default_rng(seed)
    made = formats.get(name)
    cols = blocks * made.spec.block_columns or int(rng.integers(1, 300))
    matrix = make_matrix(name, rows, cols, rng)
    parts = made.pack(matrix)
    assert tuple(len(part) for part in parts) == formats.part_bytes(made.spec, rows, cols)
    again = made.unpack(parts, rows, cols)
    assert np.array_equal(again.codes, matrix.codes)
    for found, expected in zip(again.scales, matrix.scales, strict=True):
        assert np.array_equal(found, expected)


@given(bits=st.sampled_from([1, 2, 4, 8]), rows=st.integers(1, 40), cols=st.integers(1, 200), seed=st.integers(0, 999))
@settings(max_examples=40, deadline=None)
def test_quads_and_bits_are_inverse(bits, rows, cols, seed):
    codes = np.random.default_rng(seed).integers(0, 1 << bits, (rows, cols), dtype=np.uint8)
    quads = to_quads(codes)
    assert np.array_equal(unpack_bits(pack_bits(quads, bits), bits, *quads.shape[:2]), quads)
    assert np.array_equal(from_quads(quads, rows, cols), codes)


def test_bits_a_weight_are_those_of_the_docs():
    expected = {
        "p1": 1.25, "p2": 2.25, "p3": 3.25, "p4": 4.25, "p5": 5.25, "p6": 6.25, "p7": 7.25, "p8": 8.25, "c2": 2.25,
        "c3": 3.25, "c4": 4.25, "q8_0": 8.5, "q4_0": 4.5, "q4_1": 5.0, "q5_0": 5.5, "q5_1": 6.0,
        "q2_k": 2.625, "q3_k": 3.5625, "q4_k": 4.625, "q5_k": 5.625, "q6_k": 6.5625, "iq4_nl": 4.5, "iq4_xs": 4.3125,
        "mxfp4": 4.25, "tq1_0": 1.6875, "tq2_0": 2.0625,
    }  # fmt: skip
    assert {name: formats.get(name).spec.bits for name in expected} == expected


def test_an_unknown_format_is_named():
    with pytest.raises(UnsupportedFormatError, match=r"'iq2_xxs'.*q4_k"):
        formats.get("iq2_xxs")
