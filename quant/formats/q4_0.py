"""q4_0 (ggml): value = d * (q - 8), codes of 4 bits, 32 columns share the f16 d."""

from ..format import register
from .nibbles import NibbleFormat


@register
def q4_0() -> NibbleFormat:
    return NibbleFormat(name="q4_0", bits=4, has_minimum=False)
