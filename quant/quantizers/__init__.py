"""How codes and scales are chosen: a quantizer maps float32 [rows, cols] to `Quantized` codes and scales."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from edgert.errors import UnsupportedFormatError

from ..format import Quantized
from . import codebook, ggml, rtn

F32 = NDArray[np.float32]
Quantizer = Callable[[F32], Quantized]
SampleRows = Sequence[tuple[int, int]]  # ranges of rows

_QUANTIZERS: dict[str, Quantizer] = {
    "p1": rtn.quantize_p1,
    "p2": rtn.quantize_p2,
    "p3": rtn.quantize_p3,
    "p4": rtn.quantize_p4,
    "p5": rtn.quantize_p5,
    "p6": rtn.quantize_p6,
    "p7": rtn.quantize_p7,
    "p8": rtn.quantize_p8,
    "c2": codebook.quantize_c2,
    "c3": codebook.quantize_c3,
    "c4": codebook.quantize_c4,
    "q8_0": ggml.quantize_q8_0,
    "q4_0": ggml.quantize_q4_0,
    "q4_1": ggml.quantize_q4_1,
    "q5_0": ggml.quantize_q5_0,
    "q5_1": ggml.quantize_q5_1,
    "q2_k": ggml.quantize_q2_k,
    "q3_k": ggml.quantize_q3_k,
    "q4_k": ggml.quantize_q4_k,
    "q5_k": ggml.quantize_q5_k,
    "q6_k": ggml.quantize_q6_k,
    "iq4_nl": ggml.quantize_iq4_nl,
    "iq4_xs": ggml.quantize_iq4_xs,
    "mxfp4": ggml.quantize_mxfp4,
    "tq1_0": ggml.quantize_ternary,
    "tq2_0": ggml.quantize_ternary,
    "f16": ggml.round_f16,
}

# Formats whose pieces share tables, and their width.
_CODEBOOKS = {"c2": 2, "c3": 3, "c4": 4}

TARGETS = tuple(_QUANTIZERS)


def quantizer(format_name: str) -> Quantizer:
    """The quantizer that makes a format. Raises UnsupportedFormatError with the possible targets."""
    if format_name not in _QUANTIZERS:
        raise UnsupportedFormatError(
            f"target format: found {format_name!r}, expected one of {', '.join(TARGETS)}; pass one of them to -q"
        )
    return _QUANTIZERS[format_name]


def piece_quantizer(format_name: str, rows: int, cols: int, sample: Callable[[SampleRows], F32]) -> Quantizer:
    """The quantizer for pieces of one matrix, a few strips each, which gives them what `quantizer` gives the whole.

    sample(ranges): the values of those rows, for what all pieces share.
    """
    if format_name not in _CODEBOOKS:
        return quantizer(format_name)
    found = codebook.fit(sample(codebook.sample_rows(rows, cols)), _CODEBOOKS[format_name])
    return partial(codebook.quantize, codebook=found)
