"""Which files of a model may be opened: those in its own folder, wherever a link may point (docs/security.md)."""

from __future__ import annotations

import os
from pathlib import Path

from edgert.errors import FileFormatError, ModelNotFoundError


def real_path(path: Path, *, is_named: bool = False) -> Path:
    """The file that `path` leads to, without links; to be opened with O_NOFOLLOW.

    A file that was found in a folder must lie in that folder: a link that leads out of it is refused, but for those
    that the Hugging Face cache is made of, models--ORG--NAME/snapshots/REVISION/... -> models--ORG--NAME/blobs/HASH.
    `is_named`: the user gave this very path, and may keep the file where he likes.

    Hard links are not looked at: a file cannot know which of its names is the first, and package managers and backups
    make them everywhere. Raises FileFormatError for a link that leads out, ModelNotFoundError for a NUL in the path,
    OSError where there is no such file.
    """
    try:
        folder = Path(os.path.realpath(path.parent, strict=True))
        real = Path(os.path.realpath(path, strict=True))
    except ValueError as error:  # a NUL character in the path
        raise ModelNotFoundError(f"{str(path)!r}: no path ({error}); check it") from None
    if is_named or real.is_relative_to(folder) or _is_hub_blob(folder, real):
        return real
    raise FileFormatError(
        f"{path}: found a link to {real}, expected a file inside {folder}; do not trust this model, or put the file "
        "itself there"
    )


def _is_hub_blob(folder: Path, real: Path) -> bool:
    """Whether `folder` is (in) a snapshot of the Hugging Face cache and `real` a blob of the same repository."""
    for place in (folder, *folder.parents):
        repository = place.parent.parent
        if place.parent.name == "snapshots" and repository.name.startswith("models--"):
            return real.parent == repository / "blobs"
    return False
