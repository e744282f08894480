"""p3: 3-bit uniform grid in a field and a plane, one bf16 scale for 64 columns."""

from ..format import register
from .planes import PlaneFormat


@register
def p3() -> PlaneFormat:
    return PlaneFormat(3)
