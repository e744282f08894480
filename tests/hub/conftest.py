"""A hub in a second process, a cache in a temporary folder, and the real command."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

COMMAND = [sys.executable, "-c", "from edgert.cli import main; main()"]
Run = Callable[..., subprocess.CompletedProcess[str]]


class Hub:
    """What the second process serves. `requests` are what came, in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state: dict[str, Any] = {
            "repos": {},
            "statuses": {},
            "token": None,
            "error_code": None,
            "redirect_to": None,
            "garbage": None,
            "knows_ranges": True,
            "drop_after": None,
            "pause_s": 0,
        }
        self.set()
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("server.py")), str(folder)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"

    def set(self, **changes: Any) -> None:
        self.state |= changes
        temporary = self.folder / "state.tmp"
        temporary.write_text(json.dumps(self.state), encoding="utf-8")
        temporary.replace(self.folder / "state.json")

    def add(self, repo: str, files: dict[str, bytes], **listed: Any) -> str:
        """Serves a repository; `listed` overrides what the listing says of each file. The commit."""
        entries = {}
        for name, content in files.items():
            git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            (self.folder / git).write_bytes(content)
            entries[name] = {
                "git": git,
                "is_lfs": name.endswith((".gguf", ".safetensors", ".bin")),
                "listed_bytes": len(content),
                "listed_sha256": hashlib.sha256(content).hexdigest(),
            } | listed
        commit = hashlib.sha1("".join(entry["git"] for entry in entries.values()).encode()).hexdigest()
        self.state["repos"][repo] = {"commit": commit, "files": entries}
        self.set()
        return commit

    @property
    def requests(self) -> list[dict[str, str]]:
        log = self.folder / "log.jsonl"
        return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    folder = tmp_path / "served"
    folder.mkdir()
    made = Hub(folder)
    yield made
    made.stop()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, for this process and those that it starts."""
    for key in list(os.environ):
        if key.startswith(("HF_", "HUGGINGFACE_", "TRANSFORMERS_")) or key.lower().endswith("_proxy"):
            monkeypatch.delenv(key)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path / "hf" / "hub"


@pytest.fixture
def edgert(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `edgert ARGUMENTS...` in an empty folder; environment: variables to add."""
    here = tmp_path / "here"
    here.mkdir()

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            env={**os.environ, **environment},
            cwd=here,
            timeout=120,
        )

    return run


@pytest.fixture
def pull(hub: Hub, edgert: Run) -> Run:
    """`edgert pull ARGUMENTS...` from the test's hub."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return edgert("pull", *arguments, **{"HF_ENDPOINT": hub.url, **environment})

    return run


def blobs(cache: Path) -> list[str]:
    """Names of all files in the blobs of the cache."""
    return sorted(path.name for path in cache.glob("models--*/blobs/*"))
