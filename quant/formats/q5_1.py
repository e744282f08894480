"""q5_1 (ggml): value = d * q + m, codes of 5 bits, 32 columns share the f16 d and m."""

from ..format import register
from .nibbles import NibbleFormat


@register
def q5_1() -> NibbleFormat:
    return NibbleFormat(name="q5_1", bits=5, has_minimum=True)
