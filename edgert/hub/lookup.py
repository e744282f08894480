"""Where a model lies in the cache, by its name. No network, no huggingface_hub."""

from __future__ import annotations

import json
from pathlib import Path

from edgert.errors import ModelNotFoundError
from edgert.hub.cache import CachedRepo, Snapshot, cache_folder, read_repo
from edgert.hub.choose import INDEX, Choice, choose_files
from edgert.hub.names import HubName

_MAX_INDEX_BYTES = 64 << 20


def find_cached(name: HubName) -> Path:
    """The path to open. Raises ModelNotFoundError for what the cache does not hold, or not wholly; HubError for a name
    that fits several models."""
    cache = cache_folder()
    repo = read_repo(cache, name.repo)
    if repo is None or not any(snapshot.files for snapshot in repo.snapshots):
        raise ModelNotFoundError(
            f"{name}: not in the cache ({cache}), and no file or folder here; run: edgert pull {name}"
        )
    snapshot, choice = _chosen(name, repo)
    if missing := _missing(snapshot, choice):
        raise ModelNotFoundError(
            f"{name}: found no {missing} in the cache ({snapshot.path}), expected the whole model; "
            f"run: edgert pull {name}"
        )
    return snapshot.path if choice.entry is None else snapshot.path / choice.entry


def _chosen(name: HubName, repo: CachedRepo) -> tuple[Snapshot, Choice]:
    """The first snapshot that holds the model."""
    first: ModelNotFoundError | None = None
    for snapshot in repo.snapshots:
        try:
            return snapshot, choose_files(name, snapshot.sizes)
        except ModelNotFoundError as error:
            first = first or error
    raise ModelNotFoundError(f"{first} (looked in {repo.path}); or run: edgert pull {name}")


def _missing(snapshot: Snapshot, choice: Choice) -> str | None:
    """A shard that the index names and the cache lacks, as after an interrupted download."""
    if INDEX not in choice.files or snapshot.sizes[INDEX] > _MAX_INDEX_BYTES:
        return None  # where it is too large, opening it says so
    try:
        named = json.loads((snapshot.path / INDEX).read_bytes())["weight_map"].values()
        return next((str(file) for file in sorted(set(named)) if file not in snapshot.sizes), None)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None  # opening it says what is wrong
