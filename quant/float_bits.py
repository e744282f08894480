"""bfloat16 as numpy sees it: float32 values whose lower 16 bits are zero, stored as uint16."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
U16 = NDArray[np.uint16]


def bf16_to_float32(bits: U16) -> F32:
    """Exact widening: the 16 bits become the upper half."""
    result: F32 = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return result


def float32_to_bf16(values: F32) -> U16:
    """Rounds to the nearest bfloat16, ties to even. Finite values only; beyond the range gives infinity."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    bits16: U16 = (rounded >> np.uint32(16)).astype(np.uint16)
    return bits16


def round_to_bf16(values: F32) -> F32:
    """float32 values rounded to what bfloat16 can hold."""
    return bf16_to_float32(float32_to_bf16(values))


def round_to_f16(values: F32) -> F32:
    """float32 values rounded to what float16 can hold; beyond its range gives infinity."""
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)
