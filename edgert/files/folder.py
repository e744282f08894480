"""Our own folder: safetensors whose __metadata__ says of which parts each packed tensor is made (docs/formats.md)."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgert.config import shown
from edgert.errors import FileFormatError, UnsupportedFormatError
from edgert.files.checkpoint import Part, TensorEntry
from edgert.files.opening import parse_json
from edgert.files.safetensors import SafetensorsHeader

FORMAT_VERSION_KEY = "edgert.format_version"
TENSORS_KEY = "edgert.tensors"
FORMAT_VERSION = "1"
MAX_PARTS = 10
OUTLIER_PREFIX = "outlier_"

_CHECKSUM = re.compile(r"crc32:[0-9a-f]{8}")


def packed_tensors(
    files: tuple[Path, ...], headers: list[SafetensorsHeader], plain: dict[str, TensorEntry]
) -> dict[str, TensorEntry]:
    """The model's tensors: packed ones from the metadata, float ones as they are; padding and parts are left out.

    Raises FileFormatError if the metadata and the tensors disagree, UnsupportedFormatError for another version.
    """
    packed: dict[str, TensorEntry] = {}
    used: set[str] = set()
    for path, header in zip(files, headers, strict=True):
        version = header.metadata.get(FORMAT_VERSION_KEY, FORMAT_VERSION)
        if version != FORMAT_VERSION:
            raise UnsupportedFormatError(
                f"{path}: {FORMAT_VERSION_KEY}: found {shown(version)}, expected {FORMAT_VERSION!r}; update edgert"
            )
        text = header.metadata.get(TENSORS_KEY, "{}").encode()
        described = parse_json(text, f"{path}: {TENSORS_KEY}", file_bytes=header.file_bytes)
        for name, value in described.items():
            if name in packed:
                raise FileFormatError(
                    f"{path}: tensor {name[:120]!r}: found it in two files, expected it once; convert the model again"
                )
            packed[name] = _packed_entry(path, name, value, header.tensors, used)
    for name, entry in plain.items():
        if "#" in name:
            if name not in used and not name.startswith("#pad."):
                raise FileFormatError(
                    f"{files[entry.file]}: found part {name[:120]!r} of no tensor, expected one that names it; "
                    "convert the model again"
                )
        elif name not in packed:
            packed[name] = entry
    return packed


def _packed_entry(path: Path, name: str, value: Any, tensors: dict[str, TensorEntry], used: set[str]) -> TensorEntry:
    what = f"{path}: tensor {name[:120]!r}"
    if not isinstance(value, dict) or not isinstance(value.get("format"), str):
        raise FileFormatError(
            f"{what}: found {shown(value)}, expected an object with format, shape and parts; convert the model again"
        )
    shape, listed = value.get("shape"), value.get("parts")
    if (
        not isinstance(shape, list)
        or not 1 <= len(shape) <= 3
        or not all(type(n) is int and 0 < n < 2**31 for n in shape)
    ):
        raise FileFormatError(f"{what}: found shape {shown(shape)}, expected 1 to 3 sizes; convert the model again")
    if not isinstance(listed, list) or len(listed) > MAX_PARTS:
        raise FileFormatError(
            f"{what}: found {shown(listed)}, expected a list of up to {MAX_PARTS} parts; convert the model again"
        )
    if not listed:
        return _described_float(what, name, value, tensors)
    parts = tuple(_part(what, part, tensors, used) for part in listed)
    num_bytes = sum(part.length for part in parts)
    # One bit is the least that a weight takes: a shape beyond that is a lie that would be allocated for.
    if math.prod(shape) > 8 * num_bytes:
        raise FileFormatError(
            f"{what}: found {num_bytes} bytes for shape {shape}, expected more; convert the model again"
        )
    first = tensors[listed[0]["tensor"]]
    own = tuple(part for part in parts if not part.name.startswith(OUTLIER_PREFIX))
    outliers = tuple(part for part in parts if part.name.startswith(OUTLIER_PREFIX))
    if not own or parts != own + outliers:
        raise FileFormatError(
            f"{what}: found parts {', '.join(part.name[:20] for part in parts)}, expected those of the format and then "
            "those of outliers; convert the model again"
        )
    return TensorEntry(name, value["format"], tuple(shape), first.file, first.offset, num_bytes, own, outliers)


def _described_float(what: str, name: str, value: dict[str, Any], tensors: dict[str, TensorEntry]) -> TensorEntry:
    """A tensor without parts: its bytes are the safetensors tensor of the same name."""
    entry, format_name, shape = tensors.get(name), value["format"], value["shape"]
    if entry is None or entry.format != format_name or list(entry.shape) != shape:
        found = f"{entry.format} of shape {list(entry.shape)}" if entry else "none"
        raise FileFormatError(
            f"{what}: found {found}, expected a {format_name:.20} tensor of shape {shape}; convert the model again"
        )
    return replace(entry, checksum=_checksum(what, value.get("checksum")))


def _part(what: str, value: Any, tensors: dict[str, TensorEntry], used: set[str]) -> Part:
    if not isinstance(value, dict) or not all(isinstance(value.get(key), str) for key in ("name", "tensor")):
        raise FileFormatError(
            f"{what}: found {shown(value)}, expected parts with name and tensor; convert the model again"
        )
    key, checksum = value["tensor"], value.get("checksum")
    entry = tensors.get(key)
    if entry is None or entry.format != "u8" or len(entry.shape) != 1:
        found = f"{entry.format} of shape {list(entry.shape)}" if entry else "none"
        raise FileFormatError(
            f"{what}: part {key[:120]!r}: found {found}, expected a U8 tensor of one dimension; convert the model again"
        )
    if key in used:
        raise FileFormatError(f"{what}: found part {key[:120]!r} used twice, expected once; convert the model again")
    used.add(key)
    return Part(value["name"], entry.offset, entry.length, _checksum(f"{what}: part {key[:120]!r}", checksum))


def _checksum(what: str, value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and _CHECKSUM.fullmatch(value)):
        raise FileFormatError(
            f"{what}: found checksum {shown(value)}, expected crc32:xxxxxxxx; convert the model again"
        )
    return value
