"""Random weights of any format without quantising whole matrices: a few strips are made once and repeated.

Blocks of ggml's formats are random bytes with scales that give the values the deviation of trained weights. Our own
formats are quantised from Gaussian values by the package's quantisers.
"""

from functools import cache

import numpy as np
from _common import import_tree
from numpy.typing import NDArray

import_tree()
from edgert.quant import format as formats  # noqa: E402
from edgert.quant import neurons  # noqa: E402
from edgert.quant.quantizers import quantizer  # noqa: E402

U8 = NDArray[np.uint8]
WEIGHT_DEVIATION = 0.02
# Of an embedding in front of experts: else what the layers add outweighs it, and all tokens get the same experts.
ROUTED_EMBEDDING_GAIN = 100.0
POOL_ROWS = 256
STRIP_ROWS = 16

# Blocks of a GGUF file: columns, bytes, where the float16 scale and the float16 minimum lie, the middle of the codes
# that the minimum takes away, and the deviation of the values in random bytes with a scale of 1.
_BLOCKS: dict[str, tuple[int, int, int, int | None, float, float]] = {
    "q8_0": (32, 34, 0, None, 0, 73.9),
    "q4_0": (32, 18, 0, None, 0, 4.6),
    "q4_1": (32, 20, 0, 2, 7.5, 4.6),
    "q5_0": (32, 22, 0, None, 0, 9.2),
    "q5_1": (32, 24, 0, 2, 15.5, 9.2),
    "q2_k": (256, 84, 80, 82, 1.5, 13.84),
    "q3_k": (256, 110, 108, None, 0, 42.55),
    "q4_k": (256, 144, 0, 2, 7.5, 261.6),
    "q5_k": (256, 176, 0, 2, 15.5, 530.5),
    "q6_k": (256, 210, 208, None, 0, 1367),
    "iq4_nl": (32, 18, 0, None, 0, 68),
    "iq4_xs": (256, 136, 0, None, 0, 1258),
    "tq1_0": (256, 54, 52, None, 0, 0.82),
    "tq2_0": (256, 66, 64, None, 0, 0.82),
}
_FLOAT_BYTES = {"f32": 4, "f16": 2, "bf16": 2}
BLOCK_FORMATS = (*_BLOCKS, "mxfp4", "f16", "bf16", "f32")


@cache
def block_rows(kind: str, cols: int, gain: float = 1.0) -> U8:
    """POOL_ROWS rows as a GGUF file holds them: uint8 [rows, row bytes].

    gain: of the deviation of weights; mxfp4 has none.
    """
    rng = np.random.default_rng([cols, *kind.encode()])
    if kind in _FLOAT_BYTES:
        return _float_rows(rng, kind, cols, gain)
    if kind == "mxfp4":
        blocks = rng.integers(0, 256, (POOL_ROWS, cols // 32, 17), np.uint8)
        blocks[..., 0] = 120 + rng.integers(0, 2, blocks.shape[:2])  # the exponent: 2^-8 or 2^-7 for values up to 6
        return blocks.reshape(POOL_ROWS, -1)
    columns, num_bytes, scale_at, minimum_at, middle, deviation = _BLOCKS[kind]
    blocks = rng.integers(0, 256, (POOL_ROWS, cols // columns, num_bytes), np.uint8)
    if kind == "tq2_0":
        trits = rng.integers(0, 3, (*blocks.shape[:2], 64, 4), np.uint8)
        blocks[..., :64] = (trits << np.arange(0, 8, 2, dtype=np.uint8)).sum(axis=-1)
    if kind == "q4_0":
        # Codes 1 to 15: all 16 have a mean below zero, and layer after layer makes more of it.
        low, high = (np.where(codes == 0, 8, codes) for codes in (blocks[..., 2:] & 15, blocks[..., 2:] >> 4))
        blocks[..., 2:] = low | high << 4
    scales = rng.uniform(0.9, 1.1, blocks.shape[:2]) * WEIGHT_DEVIATION * gain
    blocks[..., scale_at : scale_at + 2] = _halves(scales / deviation)
    if minimum_at is not None:
        # q4_1 and q5_1 add the minimum; k-quants subtract it, times a sub-scale like that of the codes.
        sign = 1 if kind.endswith("k") else -1
        blocks[..., minimum_at : minimum_at + 2] = _halves(scales / deviation * middle * sign)
    return blocks.reshape(POOL_ROWS, -1)


@cache
def pool_parts(kind: str, cols: int, gain: float = 1.0) -> tuple[U8, ...]:
    """The parts of POOL_ROWS rows in the layout of our files; gain as of block_rows."""
    spec = formats.get(kind)
    if kind in BLOCK_FORMATS:
        return tuple(spec.pack(spec.decode(block_rows(kind, cols, gain), cols)))
    values = np.random.default_rng(cols).normal(0, WEIGHT_DEVIATION * gain, (POOL_ROWS, cols)).astype(np.float32)
    return tuple(spec.pack(quantizer(kind)(values)))


@cache
def pool_records(kind: str, cols: int, gain: float = 1.0) -> U8:
    """The codes of pool_parts neuron by neuron: [cols, strips, bytes of a strip]."""
    codes = formats.get(kind).unpack(pool_parts(kind, cols, gain), POOL_ROWS, cols).codes
    return neurons.pack(codes.view(np.uint8), neurons.code_bits(kind))


class RandomWeights:
    """Matrices cut out of the pools at changing rows, so that neighbours differ."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def blocks(self, kind: str, rows: int, cols: int, gain: float = 1.0) -> U8:
        """uint8 [rows, row bytes] of a GGUF file."""
        first = int(self._rng.integers(0, POOL_ROWS))
        return block_rows(kind, cols, gain)[(first + np.arange(rows)) % POOL_ROWS]

    def parts(self, kind: str, rows: int, cols: int, gain: float = 1.0) -> list[U8]:
        """The parts of a matrix of our files, flat bytes."""
        first = int(self._rng.integers(0, POOL_ROWS // STRIP_ROWS))
        out = []
        spec = formats.get(kind).spec
        for pool, num_bytes in zip(pool_parts(kind, cols, gain), formats.part_bytes(spec, rows, cols), strict=True):
            if pool.nbytes == formats.part_bytes(spec, STRIP_ROWS, cols)[len(out)]:  # one for the whole matrix
                out.append(pool)
                continue
            strips = pool.reshape(POOL_ROWS // STRIP_ROWS, -1)
            num_strips = -(-num_bytes // strips.shape[1])
            out.append(strips[(first + np.arange(num_strips)) % len(strips)].reshape(-1)[:num_bytes])
        return out

    def neuron_parts(self, kind: str, rows: int, cols: int, gain: float = 1.0) -> list[U8]:
        """The parts of a matrix of our files that lies neuron by neuron."""
        before = self.parts(kind, rows, cols, gain)[: len(neurons.scale_parts(formats.get(kind).spec))]
        records = pool_records(kind, cols, gain)
        strips = np.arange(-(-rows // STRIP_ROWS)) % records.shape[1]
        return [*before, np.ascontiguousarray(records[:, strips]).reshape(-1)]


def _float_rows(rng: np.random.Generator, kind: str, cols: int, gain: float) -> U8:
    values = rng.normal(0, WEIGHT_DEVIATION * gain, (POOL_ROWS, cols)).astype(np.float32)
    if kind == "bf16":
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return values.astype(np.float16 if kind == "f16" else np.float32).view(np.uint8)


def _halves(values: NDArray[np.float64]) -> U8:
    return values.astype(np.float16)[..., None].view(np.uint8)
