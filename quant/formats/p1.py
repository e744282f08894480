"""p1: the sign of each weight in a plane, one bf16 scale for 64 columns."""

from ..format import register
from .planes import PlaneFormat


@register
def p1() -> PlaneFormat:
    return PlaneFormat(1)
