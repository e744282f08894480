"""Our container: where every part of every tensor lies in model.safetensors, and the file that is written by that plan.

docs/formats.md has every byte. `plan_container` is pure; `ContainerWriter` has the effects.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from edgert.errors import ConvertError

from . import neurons, outliers
from .format import FormatSpec, get, part_bytes

FORMAT_VERSION = "1"
UNIT_ALIGNMENT = 4096  # of the file offset where a unit begins: direct reads want whole pages
PART_ALIGNMENT = 64  # of the file offset where a part begins: a cache line and a vector
_EXPERT = re.compile(r"^(?P<expert>.+\.experts\.\d+)\.(?P<matrix>gate|up|down)_proj\.weight$")
_EXPERT_ORDER = {"gate": 0, "up": 1, "down": 2}
_NO_CHECKSUM = "crc32:00000000"
_DTYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16"}


@dataclass(frozen=True, slots=True)
class ContainerTensor:
    """A tensor to store: shape (rows, cols), or (n,) for a vector. num_outliers: beside the format's parts; 0: none.

    is_by_neuron: its codes lie column by column, in one part.
    """

    name: str
    format: str
    shape: tuple[int, ...]
    role: str
    num_outliers: int = 0
    is_by_neuron: bool = False

    @property
    def spec(self) -> FormatSpec:
        return get(self.format).spec

    @property
    def part_names(self) -> tuple[str, ...]:
        own = tuple(p.name for p in self.spec.parts)
        if self.is_by_neuron:
            own = (*(p.name for p in neurons.scale_parts(self.spec)), neurons.PART_NAME)
        return own + (outliers.PART_NAMES if self.num_outliers else ())

    @property
    def part_bytes(self) -> tuple[int, ...]:
        rows, cols = self.shape if len(self.shape) == 2 else (1, self.shape[0])
        own = part_bytes(self.spec, rows, cols)
        if self.is_by_neuron:
            own = neurons.part_bytes(self.spec, rows, cols)
        return own + (outliers.part_bytes(rows, self.num_outliers) if self.num_outliers else ())


@dataclass(frozen=True, slots=True)
class Slot:
    """A safetensors entry: a part of a tensor, or padding. `offset` counts from the start of the data."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """Every offset of the file. `slots` are in file order without holes; `parts` maps a tensor to its slots."""

    tensors: tuple[ContainerTensor, ...]
    slots: tuple[Slot, ...]
    parts: Mapping[str, tuple[Slot, ...]]
    header_bytes: int  # offset of the data in the file, a multiple of UNIT_ALIGNMENT
    data_bytes: int

    @property
    def file_bytes(self) -> int:
        return self.header_bytes + self.data_bytes

    def header(self, checksums: Mapping[str, str]) -> bytes:
        """The first `header_bytes` bytes of the file, with the checksum of each slot's key."""
        text = _header_text(self.tensors, self.slots, self.parts, checksums)
        padded = text.ljust(self.header_bytes - 8)
        return struct.pack("<Q", len(padded)) + padded


def group_units(tensors: Iterable[ContainerTensor]) -> list[list[ContainerTensor]]:
    """Tensors that are loaded alone, in the order given; gate, up and down of an expert are one unit."""
    units: dict[str, list[ContainerTensor]] = {}
    for tensor in tensors:
        match = _EXPERT.match(tensor.name)
        units.setdefault(match["expert"] if match else tensor.name, []).append(tensor)
    return [sorted(unit, key=_place_in_expert) if len(unit) > 1 else unit for unit in units.values()]


def _place_in_expert(tensor: ContainerTensor) -> int:
    match = _EXPERT.match(tensor.name)
    return _EXPERT_ORDER[match["matrix"]] if match else 0


def plan_container(units: Sequence[Sequence[ContainerTensor]]) -> ContainerPlan:
    """Lays out units (a tensor, or the gate, up and down of an expert) one after the other.

    A unit begins on 4096 bytes of the file and its parts on 64. In a unit the coarsest parts of all its tensors come
    first, then each further plane, so that a prefix of the unit is a coarser unit and one read. Records of neurons come
    before all else: they begin with the unit, so that few lie across two sectors.
    """
    layout = _Layout()
    for unit in units:
        layout.align(UNIT_ALIGNMENT)
        for _, tensor_index, part_index in sorted(
            (_phase(name), t, p) for t, tensor in enumerate(unit) for p, name in enumerate(tensor.part_names)
        ):
            layout.align(PART_ALIGNMENT)
            layout.add_part(unit[tensor_index], part_index)
    tensors = tuple(tensor for unit in units for tensor in unit)
    parts = {t.name: tuple(layout.parts[t.name, i] for i in range(len(t.part_names))) for t in tensors}
    slots = tuple(layout.slots)
    text = _header_text(tensors, slots, parts, {})
    header_bytes = -(-(8 + len(text)) // UNIT_ALIGNMENT) * UNIT_ALIGNMENT
    return ContainerPlan(tensors, slots, parts, header_bytes, layout.end)


class ContainerWriter:
    """Writes the file of a plan, tensors in any order. Context manager.

    The header is written last: until `finish` the file begins with zeros and no reader takes it for a model.
    """

    def __init__(self, path: Path, plan: ContainerPlan) -> None:
        self.plan = plan
        self._path = path
        self._checksums: dict[str, str] = {}
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        # The size is set at once; what is never written (padding) reads as zeros.
        os.ftruncate(self._fd, plan.file_bytes)

    def write(self, name: str, parts: Sequence[NDArray[np.uint8]]) -> None:
        """Writes the parts of a tensor, flat bytes in the order of its format."""
        slots = self.plan.parts[name]
        found = [part.nbytes for part in parts]
        expected = [slot.length for slot in slots]
        if found != expected:
            raise ConvertError(f"{self._path}: {name!r}: found parts of {found} bytes, expected {expected}")
        for slot, part in zip(slots, parts, strict=True):
            data = np.ascontiguousarray(part).data
            _write_at(self._fd, data, self.plan.header_bytes + slot.offset)
            self._checksums[slot.key] = f"crc32:{zlib.crc32(data):08x}"

    def finish(self) -> None:
        """Data to the disk, then the header with the checksums. Raises ConvertError if a tensor was not written."""
        missing = [t.name for t in self.plan.tensors if self.plan.parts[t.name][0].key not in self._checksums]
        if missing:
            raise ConvertError(f"{self._path}: found {len(missing)} tensors not written, expected none: {missing[0]!r}")
        os.fsync(self._fd)
        _write_at(self._fd, memoryview(self.plan.header(self._checksums)), 0)
        os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> ContainerWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Layout:
    """Slots appended so far."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.parts: dict[tuple[str, int], Slot] = {}
        self.end = 0

    def align(self, alignment: int) -> None:
        """A padding entry up to the next multiple: safetensors allows no holes."""
        length = -self.end % alignment
        if length:
            self._append(f"#pad.{len(self.slots)}", "U8", (length,), length)

    def add_part(self, tensor: ContainerTensor, part: int) -> None:
        length = tensor.part_bytes[part]
        if tensor.spec.is_float:
            slot = self._append(tensor.name, _DTYPES[tensor.format], tensor.shape, length)
        else:
            slot = self._append(f"{tensor.name}#{tensor.part_names[part]}", "U8", (length,), length)
        self.parts[tensor.name, part] = slot

    def _append(self, key: str, dtype: str, shape: tuple[int, ...], length: int) -> Slot:
        slot = Slot(key, dtype, shape, self.end, length)
        self.slots.append(slot)
        self.end += length
        return slot


def _phase(part_name: str) -> int:
    """-1 for neurons, 0 for what else the coarsest view needs, i for plane i."""
    if part_name == neurons.PART_NAME:
        return -1
    return int(part_name[5:]) if part_name.startswith("plane") else 0


def _header_text(
    tensors: Sequence[ContainerTensor],
    slots: Sequence[Slot],
    parts: Mapping[str, tuple[Slot, ...]],
    checksums: Mapping[str, str],
) -> bytes:
    described = {t.name: _description(t, parts[t.name], checksums) for t in tensors}
    header: dict[str, object] = {
        "__metadata__": {
            "edgert.format_version": FORMAT_VERSION,
            "edgert.checksum": "crc32",
            "edgert.tensors": json.dumps(described, separators=(",", ":")),
        }
    }
    for slot in slots:
        offsets = [slot.offset, slot.offset + slot.length]
        header[slot.key] = {"dtype": slot.dtype, "shape": list(slot.shape), "data_offsets": offsets}
    return json.dumps(header, separators=(",", ":")).encode()


def _description(tensor: ContainerTensor, slots: Sequence[Slot], checksums: Mapping[str, str]) -> dict[str, object]:
    """The tensor's entry in the metadata. A float tensor has no parts: its checksum is its own."""
    sums = [checksums.get(slot.key, _NO_CHECKSUM) for slot in slots]
    common = {"format": tensor.format, "shape": list(tensor.shape), "role": tensor.role}
    if tensor.spec.is_float:
        return {**common, "parts": [], "checksum": sums[0]}
    listed = [
        {"name": name, "tensor": slot.key, "checksum": checksum}
        for name, slot, checksum in zip(tensor.part_names, slots, sums, strict=True)
    ]
    return {**common, "parts": listed}


def _write_at(fd: int, data: memoryview, offset: int) -> None:
    """All of `data` at `offset`: pwrite may write less, and at most 2 GiB at once."""
    while data:
        written = os.pwrite(fd, data[: 1 << 30], offset)
        data, offset = data[written:], offset + written
