"""c2: 4 values of a table of the tensor, codes in a field, one bf16 scale for 64 columns."""

from ..format import register
from .codebooks import CodebookFormat


@register
def c2() -> CodebookFormat:
    return CodebookFormat(2)
