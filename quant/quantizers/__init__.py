"""How codes and scales are chosen: a quantizer maps float32 [rows, cols] to `Quantized` codes and scales."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from edgert.errors import UnsupportedFormatError

from ..format import Quantized
from . import ggml, rtn

Quantizer = Callable[[NDArray[np.float32]], Quantized]

_QUANTIZERS: dict[str, Quantizer] = {
    "p2": rtn.quantize_p2,
    "p3": rtn.quantize_p3,
    "p4": rtn.quantize_p4,
    "p8": rtn.quantize_p8,
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

TARGETS = tuple(_QUANTIZERS)


def quantizer(format_name: str) -> Quantizer:
    """The quantizer that makes a format. Raises UnsupportedFormatError with the possible targets."""
    if format_name not in _QUANTIZERS:
        raise UnsupportedFormatError(
            f"target format: found {format_name!r}, expected one of {', '.join(TARGETS)}; pass one of them to -q"
        )
    return _QUANTIZERS[format_name]
