"""f16: IEEE binary16; widening is exact."""

import numpy as np

from ..format import register
from .floats import FloatFormat


@register
def f16() -> FloatFormat:
    return FloatFormat("f16", np.float16, lambda values: values.astype(np.float32))
