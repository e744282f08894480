"""A recorded routing of a mixture-of-experts model: what its routers chose for each token of a text, in one file."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from edgert.errors import FileFormatError, ModelNotFoundError, UnsupportedModelError
from edgert.whole_file import written_whole

VERSION = 1
MAX_LAYERS, MAX_EXPERTS = 1024, 4096
# What `_core.Runtime.stop_routing_trace` gives for a layer: experts, weights, gate_logits.
RoutedLayer: TypeAlias = tuple[NDArray[np.int16], NDArray[np.float32], NDArray[np.float32] | None]
# Each array of the file: its type and its number of axes.
_ARRAYS: dict[str, tuple[str, int]] = {
    "version": ("<i4", 0),
    "token_ids": ("<i4", 1),
    "text_starts": ("<i8", 1),
    "experts": ("<i2", 3),
    "weights": ("<f4", 3),
    "gate_logits": ("<f2", 3),
    "expert_bytes": ("<i8", 2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertTrace:
    """token_ids: int32 (tokens,). text_starts: int64, ascending: tokens before which the context was emptied.

    experts: int16 (tokens, layers, top_k), ascending. weights: float32, likewise. gate_logits: float16 (tokens, layers,
    experts): each layer's router on the input of the layer before it, zeros for the first; None where they are not
    known. expert_bytes: int64 (layers, experts).
    """

    token_ids: NDArray[np.int32]
    text_starts: NDArray[np.int64]
    experts: NDArray[np.int16]
    weights: NDArray[np.float32]
    gate_logits: NDArray[np.float16] | None
    expert_bytes: NDArray[np.int64]

    @property
    def num_tokens(self) -> int:
        return int(self.experts.shape[0])

    @property
    def num_layers(self) -> int:
        return int(self.experts.shape[1])

    @property
    def top_k(self) -> int:
        return int(self.experts.shape[2])

    @property
    def total_bytes(self) -> int:
        """Bytes of all experts of all layers."""
        return int(self.expert_bytes.sum())

    def part(self, begin: int, end: int) -> ExpertTrace:
        """The tokens [begin, end)."""
        inside = self.text_starts[(self.text_starts >= begin) & (self.text_starts < end)]
        return ExpertTrace(
            token_ids=self.token_ids[begin:end],
            text_starts=inside - begin,
            experts=self.experts[begin:end],
            weights=self.weights[begin:end],
            gate_logits=None if self.gate_logits is None else self.gate_logits[begin:end],
            expert_bytes=self.expert_bytes,
        )


def collect(
    texts: Sequence[tuple[NDArray[np.int32], Sequence[RoutedLayer]]], expert_bytes: NDArray[np.int64]
) -> ExpertTrace:
    """One trace from texts that ran one after the other, each with an empty context."""
    lengths = [len(tokens) for tokens, _ in texts]
    return ExpertTrace(
        token_ids=np.concatenate([tokens for tokens, _ in texts]),
        text_starts=np.cumsum([0, *lengths[:-1]], dtype=np.int64),
        experts=np.concatenate([np.stack([layer[0] for layer in layers], axis=1) for _, layers in texts]),
        weights=np.concatenate([np.stack([layer[1] for layer in layers], axis=1) for _, layers in texts]),
        gate_logits=_gate_logits([layers for _, layers in texts], expert_bytes),
        expert_bytes=expert_bytes,
    )


def check_routed(layers: Sequence[RoutedLayer], num_tokens: int, what: str) -> None:
    """Raises UnsupportedModelError where layers cannot lie in one array."""
    if not layers:
        raise UnsupportedModelError(f"{what}: found no mixture-of-experts layer, expected some; it routes nothing")
    shapes = {layer[0].shape for layer in layers}
    if shapes != {(num_tokens, layers[0][0].shape[1])}:
        raise UnsupportedModelError(f"{what}: found layers that choose {sorted(shapes)} experts, expected one shape")


def half_precision(layers: Sequence[RoutedLayer]) -> list[RoutedLayer]:
    """The same with gate_logits in float16, as a trace keeps them."""
    return [(e, w, None if g is None else g.astype(np.float16)) for e, w, g in layers]


def _gate_logits(texts: Sequence[Sequence[RoutedLayer]], expert_bytes: NDArray[np.int64]) -> NDArray[np.float16] | None:
    if any(layer[2] is None for layers in texts for layer in layers[1:]):
        return None
    kept = []
    for layers in texts:
        logits = np.zeros((len(layers[0][0]), *expert_bytes.shape), np.float16)
        for index, layer in enumerate(layers[1:], 1):
            logits[:, index] = layer[2]
        kept.append(logits)
    return np.concatenate(kept)


def save(trace: ExpertTrace, path: Path) -> None:
    """Writes the file whole, or leaves what was there. docs/formats.md has its layout."""
    arrays: dict[str, Any] = {name: getattr(trace, name) for name in _ARRAYS if name != "version"}
    arrays = {name: array for name, array in arrays.items() if array is not None}
    with written_whole(path) as unfinished, unfinished.open("wb") as file:
        np.savez(file, version=np.int32(VERSION), **arrays)


def load(path: Path) -> ExpertTrace:
    """Reads a trace and checks all of it.

    Raises ModelNotFoundError, or FileFormatError for anything that `save` would not have written.
    """
    if not path.is_file():
        raise ModelNotFoundError(f"{path}: no such file; make a trace with: edgert moe profile MODEL --text FILE")
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = {name: _read(archive, name, path) for name in _ARRAYS if f"{name}.npy" in archive.namelist()}
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError) as error:
        raise FileFormatError(f"{path}: found no routing trace ({error}); make it again") from None
    missing = _ARRAYS.keys() - arrays.keys() - {"gate_logits"}
    if missing:
        raise FileFormatError(f"{path}: found no {', '.join(sorted(missing))}, expected a routing trace")
    if arrays["version"] != VERSION:
        raise FileFormatError(f"{path}: found version {arrays['version']}, expected {VERSION}; make it again")
    del arrays["version"]
    trace = ExpertTrace(**({"gate_logits": None} | cast("dict[str, Any]", arrays)))
    _check(trace, path)
    return trace


def _read(archive: zipfile.ZipFile, name: str, path: Path) -> NDArray[Any]:
    kind, num_axes = _ARRAYS[name]
    member = archive.getinfo(f"{name}.npy")
    # What is stored as it is cannot be larger than the file; what is compressed could be any size.
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
        raise FileFormatError(f"{path}: found {name} compressed or encrypted, expected it as it is")
    with archive.open(member) as file:
        try:
            version = np.lib.format.read_magic(file)
            if version != (1, 0):
                raise ValueError(f"npy version {version}")
            shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
        except ValueError as error:
            raise FileFormatError(f"{path}: found a damaged header of {name} ({error}); make it again") from None
        num_bytes = dtype.itemsize
        for length in shape:
            num_bytes *= length
        if dtype != np.dtype(kind) or len(shape) != num_axes or is_fortran:
            raise FileFormatError(
                f"{path}: {name}: found {dtype} with shape {list(shape)}, expected {num_axes} axes of {kind}"
            )
        content = file.read()
    if len(content) != num_bytes:
        raise FileFormatError(f"{path}: {name}: found {len(content)} bytes, expected {num_bytes}; make it again")
    return np.frombuffer(content, np.dtype(kind)).reshape(shape)


def _check(trace: ExpertTrace, path: Path) -> None:
    def require(holds: bool, what: str, found: object, expected: object) -> None:
        if not holds:
            raise FileFormatError(f"{path}: {what}: found {found}, expected {expected}; make it again")

    tokens, layers, top_k = trace.experts.shape
    num_experts = trace.expert_bytes.shape[1]
    require(tokens > 0, "experts", "no tokens", "some")
    require(1 <= layers <= MAX_LAYERS, "experts", f"{layers} layers", f"1 to {MAX_LAYERS}")
    require(1 <= num_experts <= MAX_EXPERTS, "expert_bytes", f"{num_experts} experts", f"1 to {MAX_EXPERTS}")
    require(1 <= top_k <= num_experts, "experts", f"{top_k} of {num_experts} chosen", f"1 to {num_experts}")
    for name, shape in (
        ("token_ids", (tokens,)),
        ("weights", trace.experts.shape),
        ("gate_logits", (tokens, layers, num_experts)),
        ("expert_bytes", (layers, num_experts)),
    ):
        array = getattr(trace, name)
        if array is not None:
            require(array.shape == shape, name, f"shape {list(array.shape)}", list(shape))
    experts, starts, sizes = trace.experts, trace.text_starts, trace.expert_bytes
    in_range = bool((experts >= 0).all() and (experts < num_experts).all())
    require(in_range, "experts", f"{experts.min()} to {experts.max()}", f"0 to {num_experts - 1}")
    require(bool((np.diff(experts, axis=2) > 0).all()), "experts", "a row that does not ascend", "ascending experts")
    require(bool(np.isfinite(trace.weights).all()), "weights", "a value that is not finite", "router weights")
    if trace.gate_logits is not None:
        require(bool(np.isfinite(trace.gate_logits).all()), "gate_logits", "a value that is not finite", "logits")
    is_ascending = bool((np.diff(starts) > 0).all() and (starts >= 0).all() and (starts < tokens).all())
    require(is_ascending, "text_starts", "starts that do not ascend", f"tokens below {tokens}")
    # So large that no sum of them overflows.
    in_range = bool((sizes > 0).all() and (sizes < 1 << 40).all())
    require(in_range, "expert_bytes", f"{sizes.min()} to {sizes.max()}", "1 to 2**40")
