"""One file for each weight format; importing this package fills the registry of edgert.quant.format."""

from . import (
    bf16,
    c2,
    c3,
    c4,
    f16,
    f32,
    iq4_nl,
    iq4_xs,
    mxfp4,
    p1,
    p2,
    p3,
    p4,
    p5,
    p6,
    p7,
    p8,
    q2_k,
    q3_k,
    q4_0,
    q4_1,
    q4_k,
    q5_0,
    q5_1,
    q5_k,
    q6_k,
    q8_0,
    tq1_0,
    tq2_0,
)  # fmt: skip

__all__ = [
    "bf16", "c2", "c3", "c4", "f16", "f32", "iq4_nl", "iq4_xs", "mxfp4", "p1", "p2", "p3", "p4", "p5", "p6", "p7",
    "p8", "q2_k", "q3_k", "q4_0", "q4_1", "q4_k", "q5_0", "q5_1", "q5_k", "q6_k", "q8_0", "tq1_0", "tq2_0",
]  # fmt: skip
