"""bf16: the upper 16 bits of a float32, as uint16."""

import numpy as np

from ..float_bits import bf16_to_float32
from ..format import register
from .floats import FloatFormat


@register
def bf16() -> FloatFormat:
    return FloatFormat("bf16", np.uint16, bf16_to_float32)
