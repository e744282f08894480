"""p7: 7-bit uniform grid in a field and five planes, one bf16 scale for 64 columns."""

from ..format import register
from .planes import PlaneFormat


@register
def p7() -> PlaneFormat:
    return PlaneFormat(7)
