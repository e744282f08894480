"""p5: 5-bit uniform grid in a field and three planes, one bf16 scale for 64 columns."""

from ..format import register
from .planes import PlaneFormat


@register
def p5() -> PlaneFormat:
    return PlaneFormat(5)
