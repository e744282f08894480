"""Deleting from the cache: first what would be deleted, as a value, then the deed."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from edgert.errors import HubError, ModelNotFoundError
from edgert.hub.cache import CachedFile, cache_folder, read_repo
from edgert.hub.choose import choose_files, gguf_models
from edgert.hub.names import HubName


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What goes: links of snapshots, then blobs that nothing else uses, then whole folders. num_bytes: the blobs'."""

    links: tuple[Path, ...]
    blobs: tuple[Path, ...]
    folders: tuple[Path, ...]
    num_bytes: int


def plan_removal(name: HubName) -> Removal:
    """All revisions of a repository, or of one file of it (all pieces of a split one).

    Raises ModelNotFoundError for what the cache does not hold, HubError for a FILE that means several models.
    """
    cache = cache_folder()
    repo = read_repo(cache, name.repo)
    if repo is None:
        raise ModelNotFoundError(f"{name}: not in the cache ({cache}); edgert list shows what is")
    if name.file is None:
        blobs = tuple(path for path in (repo.path / "blobs").glob("*") if not path.is_symlink() and path.is_file())
        copies = [f.blob for s in repo.snapshots for f in s.files if f.blob == f.path]
        num_bytes = sum(path.stat().st_size for path in {*blobs, *copies})
        return Removal(links=(), blobs=(), folders=(repo.path,), num_bytes=num_bytes)
    gone: list[CachedFile] = []
    kept: list[CachedFile] = []
    wanted = _wanted(name, {file: size for s in repo.snapshots for file, size in s.sizes.items()})
    for snapshot in repo.snapshots:
        for file in snapshot.files:
            (gone if file.name in wanted else kept).append(file)
    blobs = tuple({file.blob for file in gone} - {file.blob for file in kept} - {file.path for file in gone})
    num_bytes = sum(path.stat().st_size for path in {*blobs, *(f.path for f in gone if f.blob == f.path)})
    links = tuple(file.path for file in gone)
    return Removal(links=links, blobs=blobs, folders=(repo.path,) if not kept else (), num_bytes=num_bytes)


def remove(removal: Removal) -> None:
    """Deletes. Names go before the bytes behind them, so that an interruption leaves no name without its bytes.

    Raises HubError where the system refuses.
    """
    try:
        for path in (*removal.links, *removal.blobs):
            path.unlink(missing_ok=True)
        for folder in removal.folders:
            for part in ("refs", "snapshots"):
                if os.path.lexists(folder / part):
                    shutil.rmtree(folder / part)
            shutil.rmtree(folder)
    except OSError as error:
        raise HubError(f"{error.filename}: cannot be deleted ({error.strerror}); check its permissions") from None


def _wanted(name: HubName, sizes: dict[str, int]) -> set[str]:
    """The files that FILE means: a name, with all pieces of a split model, or a quantisation."""
    for pieces in gguf_models(sizes).values():
        if name.file in pieces:
            return set(pieces)
    if name.file in sizes:
        return {name.file}
    return set(choose_files(name, sizes).files)
