"""f32: IEEE binary32."""

import numpy as np

from ..format import register
from .floats import FloatFormat


@register
def f32() -> FloatFormat:
    return FloatFormat("f32", np.float32, lambda values: values.astype(np.float32))
