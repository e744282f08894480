"""Downloads a model into the Hugging Face cache: one listing, then each file, checked before it gets its name.

huggingface_hub makes the requests (token, proxy, certificates, retries). The files are put in place here, in its layout
and under its locks, since its own download throws a partial file away when it is interrupted.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from edgert.errors import HubError
from edgert.hub.cache import cache_folder, repo_folder
from edgert.hub.choose import choose_files
from edgert.hub.names import HubName, is_safe_path
from edgert.hub.remote import HubFile, Listing, fetch, list_files
from edgert.whole_file import written_whole

Progress = Callable[[int, int], None]
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """A model that is now in the cache: what to open, its files, and the bytes that came over the network."""

    path: Path
    files: tuple[Path, ...]
    num_bytes: int
    fetched_bytes: int


def pull(name: HubName, *, revision: str = "main", progress: Progress | None = None) -> Pulled:
    """Downloads what of a model is not in the cache yet. progress(done_bytes, total_bytes), of what is missing.

    After an interruption the next call goes on where this one ended. Raises HubError, or ModelNotFoundError where the
    repository holds no such model.
    """
    if not is_safe_path(revision) or revision.startswith("-"):
        raise HubError(f"--revision: found {revision!r}, expected a branch, a tag or a commit")
    cache = cache_folder()
    with _cache_errors(cache):
        listing = list_files(name, revision)
        choice = choose_files(name, {file.name: file.num_bytes for file in listing.files.values()})
        repo = repo_folder(cache, name.repo)
        snapshot = repo / "snapshots" / listing.commit
        wanted = [listing.files[file] for file in choice.files]
        missing = [file for file in wanted if not (snapshot / file.name).is_file()]
        needed_bytes = sum(_needed_bytes(repo, file) for file in missing)
        _check_space(cache, needed_bytes)
        counter = _Counter(needed_bytes, progress)
        for file in missing:
            _place(_Place(cache, repo, snapshot), listing, file, counter)
        if revision != listing.commit:
            _write_ref(repo / "refs" / revision, listing.commit)
    return Pulled(
        path=snapshot if choice.entry is None else snapshot / choice.entry,
        files=tuple(snapshot / file.name for file in wanted),
        num_bytes=sum(file.num_bytes for file in wanted),
        fetched_bytes=counter.fetched_bytes,
    )


class _Counter:
    """Bytes that came over the network, of all files together."""

    def __init__(self, total_bytes: int, progress: Progress | None) -> None:
        self._total_bytes = total_bytes
        self._progress = progress
        self.fetched_bytes = 0

    def add(self, num_bytes: int) -> None:
        self.fetched_bytes += num_bytes
        if self._progress:
            self._progress(min(self.fetched_bytes, self._total_bytes), self._total_bytes)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a repository's files go."""

    cache: Path
    repo: Path
    snapshot: Path

    def blob(self, file: HubFile) -> Path:
        return self.repo / "blobs" / file.checksum

    def lock(self, file: HubFile) -> Path:
        return self.cache / ".locks" / self.repo.name / f"{file.checksum}.lock"


def _place(place: _Place, listing: Listing, file: HubFile, counter: _Counter) -> None:
    """Brings one file into the snapshot; a second process that wants the same one waits for the first."""
    blob, link = place.blob(file), place.snapshot / file.name
    for path in (blob, link, place.lock(file)):
        path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(place.lock(file)):
        if not blob.is_file():
            _fill(blob, listing, file, counter)
        if not link.is_file():
            link.unlink(missing_ok=True)  # a broken link
            link.symlink_to(os.path.relpath(blob, link.parent))


def _fill(blob: Path, listing: Listing, file: HubFile, counter: _Counter) -> None:
    """Downloads into a partial file, goes on with one that is there, and renames it when its checksum is right."""
    partial = blob.with_name(f"{blob.name}.incomplete")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(partial, flags, 0o666), "r+b", buffering=0) as raw:
        _complete(raw, listing, file, counter)
        found = _checksum(raw, file)
        if found != file.checksum:
            partial.unlink(missing_ok=True)
            raise HubError(
                f"{file.name}: found checksum {found}, expected {file.checksum}: what came is damaged and was deleted; "
                "pull it again"
            )
        os.fsync(raw.fileno())
    os.replace(partial, blob)


def _complete(raw: IO[bytes], listing: Listing, file: HubFile, counter: _Counter) -> None:
    """Fetches what is missing, again as long as something comes: connections end early."""
    present_bytes = raw.seek(0, os.SEEK_END)
    is_new = present_bytes == 0
    while present_bytes != file.num_bytes:
        try:
            if present_bytes > file.num_bytes:
                raise _TooManyBytesError
            fetch(listing, file, _Sink(raw, file, counter), present_bytes)
        except _TooManyBytesError:
            # Not the file's beginning, or a server without ranges sent the whole file behind it: once more from 0.
            if is_new:
                raise HubError(
                    f"{file.name}: found more bytes than the {file.num_bytes:,} of the listing, expected as many; "
                    "do not trust this server, or pull again"
                ) from None
            raw.truncate(raw.seek(0))
            present_bytes, is_new = 0, True
            continue
        except HubError:
            if raw.tell() <= present_bytes:
                raise
        if raw.tell() <= present_bytes:
            raise HubError(
                f"{file.name}: found {raw.tell():,} of {file.num_bytes:,} bytes, expected all; pull again: what is "
                "there is kept"
            )
        present_bytes = raw.tell()


class _TooManyBytesError(Exception):
    """More came than the listing says."""


class _Sink:
    """The partial file, as huggingface_hub writes to it; no more comes in than the listing says."""

    def __init__(self, raw: IO[bytes], file: HubFile, counter: _Counter) -> None:
        self._raw = raw
        self._file = file
        self._counter = counter

    def write(self, chunk: bytes) -> int:
        if self._raw.tell() + len(chunk) > self._file.num_bytes:
            raise _TooManyBytesError
        view = memoryview(chunk)
        while view:
            count = self._raw.write(view)
            self._counter.add(count)
            view = view[count:]
        return len(chunk)

    def tell(self) -> int:
        return self._raw.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Asked for only before the file is begun anew."""
        before = self._raw.tell()
        now = self._raw.seek(offset, whence)
        self._counter.add(now - before)
        return now

    def truncate(self, size: int | None = None) -> int:
        return self._raw.truncate(size)


def _checksum(raw: IO[bytes], file: HubFile) -> str:
    """sha256 for what the hub keeps in LFS, git's own for the small files."""
    if file.is_lfs:
        digest = hashlib.sha256()
    else:
        digest = hashlib.sha1(f"blob {file.num_bytes}\0".encode(), usedforsecurity=False)
    raw.seek(0)
    while chunk := raw.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def _needed_bytes(repo: Path, file: HubFile) -> int:
    """Bytes of a file that are not in the cache, another revision's and a partial file's counted."""
    blob = repo / "blobs" / file.checksum
    partial = blob.with_name(f"{blob.name}.incomplete")
    if blob.is_file():
        return 0
    return max(0, file.num_bytes - (partial.stat().st_size if partial.is_file() else 0))


def _check_space(cache: Path, needed_bytes: int) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    if free < needed_bytes:
        raise HubError(
            f"{cache}: found {free:,} bytes free, expected {needed_bytes:,} or more; free some (edgert rm), or set "
            "HF_HUB_CACHE to another disk"
        )


def _write_ref(path: Path, commit: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as unfinished:
        unfinished.write_text(commit)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The same lock file, in the same way, as huggingface_hub takes for a blob."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@contextmanager
def _cache_errors(cache: Path) -> Iterator[None]:
    """System errors while writing into the cache become a HubError."""
    try:
        yield
    except OSError as error:
        where = error.filename or cache
        raise HubError(
            f"{where}: cannot be written ({error.strerror or error}); check the disk, or set HF_HUB_CACHE to another "
            "place"
        ) from error
