"""c3: 8 values of a table of the tensor, codes in a field and a plane, one bf16 scale for 64 columns."""

from ..format import register
from .codebooks import CodebookFormat


@register
def c3() -> CodebookFormat:
    return CodebookFormat(3)
