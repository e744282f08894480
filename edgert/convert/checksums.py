"""The checksums that a conversion leaves in its folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from edgert.files.checksums import CHECKSUMS, checksum_text

PIECE_BYTES = 1 << 20


def folder_checksums(
    folder: Path, further: dict[str, bytes] | None = None, report: Callable[[int], None] = lambda done: None
) -> str:
    """The text of SHA256SUMS for the files of a folder, and for those that will be written: name -> content.

    report(bytes read so far).
    """
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in (further or {}).items()}
    done = 0
    for path in folder.iterdir():
        if path.name in (CHECKSUMS, *sums):
            continue
        digest = hashlib.sha256()
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(PIECE_BYTES):
                digest.update(piece)
                done += len(piece)
                report(done)
        sums[path.name] = digest.hexdigest()
    return checksum_text(sums)
