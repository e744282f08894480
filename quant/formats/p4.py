"""p4: 4-bit uniform grid in a field and two planes, one bf16 scale for 64 columns."""

from ..format import register
from .planes import PlaneFormat


@register
def p4() -> PlaneFormat:
    return PlaneFormat(4)
