"""p2: 2-bit uniform grid in a field, one bf16 scale for 64 columns."""

from ..format import register
from .planes import PlaneFormat


@register
def p2() -> PlaneFormat:
    return PlaneFormat(2)
