"""p6: 6-bit uniform grid in a field and four planes, one bf16 scale for 64 columns."""

from ..format import register
from .planes import PlaneFormat


@register
def p6() -> PlaneFormat:
    return PlaneFormat(6)
