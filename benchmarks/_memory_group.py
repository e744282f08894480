"""Commands whose memory is counted by the kernel, and may be limited by a control group (Linux, v1 or v2)."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
# A group can be removed a moment after its last process has ended.
REMOVE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command that has ended. peak_bytes: its largest resident set, or that of one of its children."""

    exit_code: int
    out: str
    err: str
    peak_bytes: int

    @property
    def failure(self) -> str | None:
        """In a few words; None where it went well."""
        if self.exit_code == 0:
            return None
        return "killed" if self.exit_code == -9 else (self.err.strip().splitlines() or ["no message"])[-1]


# A process is charged with the memory of the one that it was forked from: so a small one stands between.
_COUNT = """
import os, resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
os.write(int(sys.argv[1]), f"{code} {peak}".encode())
"""


def run(command: Sequence[str], *, enter: Callable[[], None] | None = None) -> Ended:
    """Runs the command; `enter` is called in the child before it becomes the command."""
    counted, told = os.pipe()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, os.fdopen(counted) as count:
        child = subprocess.Popen(
            [sys.executable, "-c", _COUNT, str(told), *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            preexec_fn=enter,
            pass_fds=[told],
            start_new_session=True,
        )
        os.close(told)
        try:
            child.wait()
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
        exit_code, peak_kib = (int(number) for number in (count.read() or f"{child.returncode} 0").split())
        out.seek(0)
        err.seek(0)
        return Ended(exit_code=exit_code, out=out.read(), err=err.read(), peak_bytes=peak_kib * 1024)


class MemoryGroup:
    """A control group that holds its processes, with their page cache, to so many bytes. Context manager."""

    def __init__(self, limit_bytes: int) -> None:
        """Raises OSError where groups cannot be made; only root may."""
        is_v1 = (ROOT / "memory").is_dir()
        self._files = (
            {"limit": "memory.limit_in_bytes", "peak": "memory.max_usage_in_bytes", "events": "memory.oom_control"}
            if is_v1
            else {"limit": "memory.max", "peak": "memory.peak", "events": "memory.events"}
        )
        base = ROOT / "memory" if is_v1 else ROOT
        if not is_v1:
            (base / "cgroup.subtree_control").write_text("+memory")
        self._folder = base / f"edgert-benchmark-{os.getpid()}-{time.monotonic_ns()}"
        self._folder.mkdir()
        try:
            self._path("limit").write_text(str(limit_bytes))
        except OSError:
            self._folder.rmdir()
            raise

    def enter(self) -> None:
        """Moves the calling process into the group."""
        (self._folder / "cgroup.procs").write_text(str(os.getpid()))

    @property
    def peak_bytes(self) -> int | None:
        """The most that was charged to the group, page cache included; None where the kernel does not count it."""
        path = self._path("peak")
        return int(path.read_text()) if path.exists() else None

    @property
    def num_kills(self) -> int:
        """Processes that the kernel has ended for want of memory."""
        rows = (line.split() for line in self._path("events").read_text().splitlines())
        return sum(int(row[1]) for row in rows if row[0] == "oom_kill")

    def _path(self, name: str) -> Path:
        return self._folder / self._files[name]

    def __enter__(self) -> "MemoryGroup":
        return self

    def __exit__(self, *_: object) -> None:
        deadline_s = time.monotonic() + REMOVE_TIMEOUT_S
        while True:
            try:
                self._folder.rmdir()
                return
            except OSError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.05)
