"""A folder that appears under its name only when it is whole."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from types import TracebackType

from edgert.errors import ConvertError


class PartialFolder:
    """A hidden folder beside `target`, renamed to it by `commit` and removed if the block ends without.

    Context manager. What a killed process left under the same name is removed first; a running one keeps a lock on it.
    """

    def __init__(self, target: Path) -> None:
        self.target = Path(os.path.abspath(target))
        self.path = self.target.parent / f".{self.target.name}.partial"
        self._lock = -1
        self._committed = False

    def __enter__(self) -> PartialFolder:
        check_target(self.target)
        self.target.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _locked_folder(self.path)
        try:
            for entry in self.path.iterdir():
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        except BaseException:
            self._unlock()
            raise
        return self

    def write_text(self, name: str, text: str) -> None:
        """A small file, on the disk when this returns."""
        self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, content: bytes) -> None:
        with open(self.path / name, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def commit(self) -> None:
        """The folder takes its name. Raises ConvertError if something stands there by now."""
        check_target(self.target)
        _fsync_folder(self.path)
        try:
            os.rename(self.path, self.target)
        except OSError as error:
            raise ConvertError(f"{self.target}: cannot rename {self.path.name} to it: {error.strerror}") from error
        self._committed = True
        _fsync_folder(self.target.parent)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._committed:
                shutil.rmtree(self.path, ignore_errors=True)
        finally:
            self._unlock()

    def _unlock(self) -> None:
        os.close(self._lock)
        self._lock = -1


def check_target(target: Path) -> None:
    """Raises ConvertError if `target` exists and is not an empty folder."""
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        kind = "a folder with files" if target.is_dir() else "a file"
        raise ConvertError(
            f"{target}: found {kind}, expected a new name or an empty folder; choose another or remove it"
        )


def _locked_folder(path: Path) -> int:
    """Makes the folder if needed and locks it: an open descriptor, unlocked when closed (or when the process dies)."""
    while True:
        path.mkdir(exist_ok=True)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # its owner finished in between
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        except BlockingIOError as error:
            os.close(fd)
            raise ConvertError(
                f"{path}: found a running conversion to the same name, expected none; wait for it or choose another"
            ) from error
        except FileNotFoundError:
            pass
        os.close(fd)


def _fsync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
