"""The checksums that a conversion leaves in its folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

from edgert.files.checksums import CHECKSUMS, checksum_text

PIECE_BYTES = 1 << 20


def folder_checksums(folder: Path, further: dict[str, bytes] | None = None) -> str:
    """The text of SHA256SUMS for the files of a folder, and for those that will be written: name -> content."""
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in (further or {}).items()}
    for path in folder.iterdir():
        if path.name not in (CHECKSUMS, *sums):
            sums[path.name] = _sha256(path)
    return checksum_text(sums)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()
