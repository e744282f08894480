"""c4: 16 values of a table of the tensor, codes in a field and two planes, one bf16 scale for 64 columns."""

from ..format import register
from .codebooks import CodebookFormat


@register
def c4() -> CodebookFormat:
    return CodebookFormat(4)
