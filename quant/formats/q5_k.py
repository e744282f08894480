"""q5_k (ggml): value = (d * sc) * q - (dmin * m), codes of 5 bits, sc and m of 6 bits for 32 columns."""

from ..format import register
from .super_min import SuperMinFormat


@register
def q5_k() -> SuperMinFormat:
    return SuperMinFormat(5)
