"""Tensor types of GGUF and safetensors files: their names and sizes in bytes."""

from __future__ import annotations

# GGUF type number: name, elements of a block, bytes of a block (ggml's table; removed numbers are left out).
GGML_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("f32", 1, 4),
    1: ("f16", 1, 2),
    2: ("q4_0", 32, 18),
    3: ("q4_1", 32, 20),
    6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24),
    8: ("q8_0", 32, 34),
    9: ("q8_1", 32, 40),
    10: ("q2_k", 256, 84),
    11: ("q3_k", 256, 110),
    12: ("q4_k", 256, 144),
    13: ("q5_k", 256, 176),
    14: ("q6_k", 256, 210),
    15: ("q8_k", 256, 292),
    16: ("iq2_xxs", 256, 66),
    17: ("iq2_xs", 256, 74),
    18: ("iq3_xxs", 256, 98),
    19: ("iq1_s", 256, 50),
    20: ("iq4_nl", 32, 18),
    21: ("iq3_s", 256, 110),
    22: ("iq2_s", 256, 82),
    23: ("iq4_xs", 256, 136),
    24: ("i8", 1, 1),
    25: ("i16", 1, 2),
    26: ("i32", 1, 4),
    27: ("i64", 1, 8),
    28: ("f64", 1, 8),
    29: ("iq1_m", 256, 56),
    30: ("bf16", 1, 2),
    34: ("tq1_0", 256, 54),
    35: ("tq2_0", 256, 66),
    39: ("mxfp4", 32, 17),
}

# safetensors dtype: name, bits of an element.
SAFETENSORS_TYPES: dict[str, tuple[str, int]] = {
    "F64": ("f64", 64),
    "F32": ("f32", 32),
    "F16": ("f16", 16),
    "BF16": ("bf16", 16),
    "I64": ("i64", 64),
    "I32": ("i32", 32),
    "I16": ("i16", 16),
    "I8": ("i8", 8),
    "U64": ("u64", 64),
    "U32": ("u32", 32),
    "U16": ("u16", 16),
    "U8": ("u8", 8),
    "BOOL": ("bool", 8),
    "F8_E4M3": ("f8_e4m3", 8),
    "F8_E5M2": ("f8_e5m2", 8),
    "F8_E8M0": ("f8_e8m0", 8),
    "F6_E2M3": ("f6_e2m3", 6),
    "F6_E3M2": ("f6_e3m2", 6),
    "F4": ("f4", 4),
    "C64": ("c64", 64),
}

# Formats whose rows the core takes from a file as they are: elements of a block, bytes of a block.
ROW_FORMATS: dict[str, tuple[int, int]] = {
    name: (elements, num_bytes)
    for name, elements, num_bytes in GGML_TYPES.values()
    if name in ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k")
}


def row_bytes(format_name: str, cols: int) -> int:
    """Bytes of a row of `cols` values in a format of ROW_FORMATS. REQUIRES: cols is a multiple of its block."""
    elements, num_bytes = ROW_FORMATS[format_name]
    return cols // elements * num_bytes
