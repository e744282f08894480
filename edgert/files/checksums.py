"""SHA256SUMS, the checksums of the files of our folder, in the form of the `sha256sum` command."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from edgert.config import shown
from edgert.errors import FileFormatError
from edgert.files.opening import read_whole

CHECKSUMS = "SHA256SUMS"
MAX_CHECKSUMS_BYTES = 1 << 20

_LINE = re.compile(r"([0-9a-f]{64})  ([^/\\\s]+)")


def checksum_text(sums: Mapping[str, str]) -> str:
    """The file's text: a line for each name, in order."""
    return "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))


def read_checksums(folder: Path) -> dict[str, str]:
    """File name -> sha256 in hexadecimal digits.

    Raises FileFormatError where any byte is not as `checksum_text` writes it.
    """
    path = folder / CHECKSUMS
    text = read_whole(path, MAX_CHECKSUMS_BYTES).decode("utf-8", "replace")
    sums: dict[str, str] = {}
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise FileFormatError(
                f"{path}: line {number}: found {shown(line)}, expected a checksum, two spaces and a file name; "
                "the file is damaged"
            )
        sums[match[2]] = match[1]
    if text != checksum_text(sums):
        raise FileFormatError(f"{path}: found lines out of order, expected each file once by name; the file is damaged")
    return sums
