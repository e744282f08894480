"""How blocks of ggml hold small codes, and the values that some of them stand for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..format import U8

# The 16 values of iq4_nl and iq4_xs, and twice those of mxfp4.
UNEVEN_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
MICRO_VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)


def halves_of_32(nibbles: U8) -> U8:
    """Bytes [..., 16] -> codes [..., 32]: the low nibbles are the first 16 columns, the high ones the others."""
    return np.concatenate([nibbles & 15, nibbles >> 4], axis=-1)


def pairs_of_128(pairs: U8) -> U8:
    """Bytes [..., 2, 32] -> codes [..., 2, 128]: bits 2i and 2i + 1 of a half are its columns 32 i to 32 i + 31."""
    return np.concatenate([(pairs >> shift) & 3 for shift in (0, 2, 4, 6)], axis=-1)


def trits(byte: U8, digits: int) -> U8:
    """Bytes [..., n] -> digits [..., digits, n] in base 3 of byte / 256, each 0, 1 or 2."""
    powers = np.array([1, 3, 9, 27, 81], np.uint8)[:digits]
    rests = byte[..., None, :] * powers[:, None]  # modulo 256
    found: NDArray[np.uint8] = ((rests.astype(np.uint16) * 3) >> 8).astype(np.uint8)
    return found
