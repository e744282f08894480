"""q4_1 (ggml): value = d * q + m, codes of 4 bits, 32 columns share the f16 d and m."""

from ..format import register
from .nibbles import NibbleFormat


@register
def q4_1() -> NibbleFormat:
    return NibbleFormat(name="q4_1", bits=4, has_minimum=True)
