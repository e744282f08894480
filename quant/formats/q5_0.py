"""q5_0 (ggml): value = d * (q - 16), codes of 5 bits, 32 columns share the f16 d."""

from ..format import register
from .nibbles import NibbleFormat


@register
def q5_0() -> NibbleFormat:
    return NibbleFormat(name="q5_0", bits=5, has_minimum=False)
