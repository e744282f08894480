"""The Hugging Face cache as it lies on disk: models--ORG--NAME/{refs,snapshots/REVISION,blobs}."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgert.errors import HubError
from edgert.hub.names import parse_name

_PREFIX = "models--"


@dataclass(frozen=True, slots=True)
class CachedFile:
    """A file of a snapshot. blob: the file that holds its bytes, inside the repository's folder."""

    name: str
    path: Path
    blob: Path
    num_bytes: int
    used_s: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One revision of a repository, as far as it is in the cache. refs: branches and tags that mean it."""

    revision: str
    path: Path
    refs: tuple[str, ...]
    files: tuple[CachedFile, ...]
    made_s: float

    @property
    def sizes(self) -> dict[str, int]:
        """File name -> bytes."""
        return {file.name: file.num_bytes for file in self.files}


@dataclass(frozen=True, slots=True)
class CachedRepo:
    """A repository in the cache; snapshots: that of "main" first, then the newest."""

    repo: str
    path: Path
    snapshots: tuple[Snapshot, ...]


def cache_folder() -> Path:
    """Where the cache lies, by the variables that huggingface_hub reads. Raises HubError where nothing says it."""
    given = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if given:
        return _expanded(given)
    if home := os.environ.get("HF_HOME"):
        return _expanded(home) / "hub"
    return _expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface" / "hub"


def _expanded(path: str) -> Path:
    try:
        return Path(os.path.expandvars(path)).expanduser().absolute()
    except RuntimeError:
        raise HubError(f"cache: found no home folder for {path}, expected one; set HF_HOME") from None


def repo_folder(cache: Path, repo: str) -> Path:
    """The folder of a repository, whether it is there or not."""
    return cache / (_PREFIX + repo.replace("/", "--"))


def read_repo(cache: Path, repo: str) -> CachedRepo | None:
    """What the cache holds of a repository; None if nothing."""
    folder = repo_folder(cache, repo)
    try:
        if folder.is_symlink() or not folder.is_dir():
            return None
        refs = _read_refs(folder / "refs")
        found = [_read_snapshot(folder, path, refs) for path in _folders(folder / "snapshots")]
    except OSError as error:
        raise HubError(
            f"{error.filename or folder}: cannot be read ({error.strerror}); check its permissions"
        ) from None
    found.sort(key=lambda snapshot: ("main" in snapshot.refs, snapshot.made_s), reverse=True)
    return CachedRepo(repo, folder, tuple(found))


def list_repos(cache: Path) -> list[CachedRepo]:
    """All models in the cache, by name."""
    try:
        names = sorted(path.name for path in _folders(cache))
    except OSError as error:
        raise HubError(f"{cache}: cannot be read ({error.strerror}); check its permissions, or HF_HUB_CACHE") from None
    repos = []
    for folder in names:
        name = folder.removeprefix(_PREFIX).replace("--", "/", 1)
        if folder.startswith(_PREFIX) and parse_name(name) is not None:
            repo = read_repo(cache, name)
            repos += [repo] if repo is not None else []
    return repos


def unfinished_bytes(repo: CachedRepo) -> int:
    """Bytes of downloads that did not finish."""
    return sum(path.stat().st_size for path in _files(repo.path / "blobs") if path.name.endswith(".incomplete"))


def _read_snapshot(repo: Path, path: Path, refs: dict[str, str]) -> Snapshot:
    files = []
    for file in sorted(_files(path)):
        real = Path(os.path.realpath(file))
        # A broken link is a download that did not finish, a link elsewhere is not the hub's: neither is a file of ours.
        if real.is_file() and real.is_relative_to(os.path.realpath(repo)):
            state = real.stat()
            used_s = max(state.st_atime, state.st_mtime)
            files.append(CachedFile(file.relative_to(path).as_posix(), file, real, state.st_size, used_s))
    mine = tuple(sorted(ref for ref, revision in refs.items() if revision == path.name))
    return Snapshot(path.name, path, mine, tuple(files), path.stat().st_mtime)


def _read_refs(folder: Path) -> dict[str, str]:
    """Branch or tag -> revision."""
    refs = {}
    for path in _files(folder):
        with open(path, "rb") as file:
            refs[path.relative_to(folder).as_posix()] = file.read(64).decode("ascii", errors="replace").strip()
    return refs


def _folders(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))


def _files(folder: Path) -> Iterator[Path]:
    """All files and links to files below a folder; links to folders are not followed."""
    for where, _, names in os.walk(folder):
        yield from (Path(where, name) for name in names)
