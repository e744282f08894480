"""`edgert list` and `edgert rm` on a cache that the test lays out."""

import json
import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from .conftest import COMMAND, Run, blobs
from .test_names import Q4, Q8, put


def names(edgert: Run) -> list[str]:
    return [model["name"] for model in json.loads(edgert("list", "--json").stdout)["models"]]


def test_an_empty_cache(edgert: Run, cache: Path) -> None:
    done = edgert("list")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"0 models, 0.0 MB in {cache}\n"


def test_list(edgert: Run, cache: Path) -> None:
    snapshot = put(cache, "b/folder", {"config.json": b"{}", "model.safetensors": b"x" * 100})
    put(cache, "b/folder", {"config.json": b"{}"}, revision="b" * 40, ref=None)
    put(cache, "a/ggufs", {Q4: b"y" * 2_000_000, Q8: b"z" * 10, "README.md": b"x"})
    (cache / "datasets--a--b").mkdir()
    (cache / "models--evil--..").mkdir()
    unfinished = cache / "models--c--d" / "blobs"
    unfinished.mkdir(parents=True)
    (unfinished / "x.incomplete").write_bytes(b"x" * 7)
    used_s = time.time() - 3 * 86400
    os.utime((snapshot / "config.json").resolve(), (used_s, used_s))
    os.utime((snapshot / "model.safetensors").resolve(), (used_s, used_s))
    done = edgert("list")
    assert done.stdout.splitlines() == [
        "FORMAT       FILES    SIZE        USED  NAME",
        f"gguf             1  2.0 MB         now  a/ggufs:{Q4}",
        f"gguf             1  0.0 MB         now  a/ggufs:{Q8}",
        "safetensors      2  0.0 MB  3 days ago  b/folder",
        "unfinished       0  0.0 MB           -  c/d",
    ]
    assert done.stderr == f"4 models, 2.0 MB in {cache}\n"
    answer = json.loads(edgert("list", "--json").stdout)
    assert answer["cache"] == str(cache)
    assert [model["bytes"] for model in answer["models"]] == [2_000_000, 10, 102, 7]
    assert answer["models"][2]["path"] == str(snapshot)


def test_rm_a_file_keeps_what_others_use(edgert: Run, cache: Path) -> None:
    put(cache, "o/n", {Q4: b"same", Q8: b"8"})
    put(cache, "o/n", {"other.gguf": b"same", Q8: b"8"}, revision="b" * 40, ref=None)
    done = edgert("rm", f"o/n:{Q4}", "--yes")
    assert done.returncode == 0, done.stderr
    assert f"deleted o/n:{Q4}: 0.0 MB are free again" in done.stderr
    assert names(edgert) == [f"o/n:{Q8}", "o/n:other.gguf"]
    assert len(blobs(cache)) == 2
    assert edgert("rm", "o/n:q8_0", "-y").returncode == 0
    assert names(edgert) == ["o/n:other.gguf"]
    assert len(blobs(cache)) == 1


def test_rm_all_pieces_and_the_whole_repository(edgert: Run, cache: Path) -> None:
    put(cache, "o/n", {f"m-{i:05}-of-00002.gguf": bytes(i) for i in (1, 2)})
    put(cache, "o/other", {Q4: b"x"})
    edgert("rm", "o/n:m-00002-of-00002.gguf", "--yes")
    assert not (cache / "models--o--n").exists()
    edgert("rm", "o/other", "--yes")
    assert not (cache / "models--o--other").exists()
    assert cache.exists()


@pytest.mark.parametrize("name", ["o/none", "o/n:none.gguf", "../n", "o/..", "o", "/etc/passwd"])
def test_rm_of_what_is_not_there(edgert: Run, cache: Path, name: str) -> None:
    put(cache, "o/n", {Q4: b"x"})
    done = edgert("rm", name, "--yes")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert names(edgert) == [f"o/n:{Q4}"]


def test_rm_never_deletes_behind_a_link(edgert: Run, cache: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "m.gguf").write_bytes(b"x")
    snapshot = put(cache, "o/n", {Q4: b"x"})
    (snapshot / "m.gguf").symlink_to(precious / "m.gguf")
    (snapshot / "folder").symlink_to(precious)
    (precious / "snapshots").mkdir()
    (cache / "models--o--linked").symlink_to(precious)
    assert edgert("rm", "o/n:m.gguf", "--yes").returncode == 1
    assert edgert("rm", "o/linked", "--yes").returncode == 1
    assert edgert("rm", "o/n", "--yes").returncode == 0
    assert (precious / "m.gguf").read_bytes() == b"x"
    assert (precious / "snapshots").exists()
    assert not (cache / "models--o--n").exists()


def test_rm_asks_only_a_terminal(edgert: Run, cache: Path) -> None:
    put(cache, "o/n", {Q4: b"x"})
    done = edgert("rm", "o/n")
    assert done.returncode == 1
    assert "found no terminal to ask for leave to delete o/n (0.0 MB), expected --yes" in done.stderr
    assert names(edgert) == [f"o/n:{Q4}"]


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
@pytest.mark.parametrize(("key", "is_kept"), [("n", True), ("", True), ("y", False), ("C-c", True)])
def test_rm_on_a_terminal(edgert: Run, cache: Path, key: str, is_kept: bool) -> None:
    put(cache, "o/n", {Q4: b"x"})
    session = f"edgert-rm-{os.getpid()}-{key or 'enter'}"
    line = f'{shlex.join([*COMMAND, "rm", "o/n"])}; echo "exit code $?"; sleep 60'

    def tmux(*arguments: str) -> str:
        return subprocess.run(["tmux", "-L", session, *arguments], capture_output=True, text=True, timeout=30).stdout

    def wait_for(text: str) -> None:
        ends = time.monotonic() + 30
        while text not in tmux("capture-pane", "-p"):
            assert time.monotonic() < ends, tmux("capture-pane", "-p")
            time.sleep(0.05)

    try:
        tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", line)
        wait_for("delete o/n (0.0 MB)? [y/N]")
        tmux("send-keys", *([key] if key else []), *([] if key == "C-c" else ["Enter"]))
        wait_for(f"exit code {130 if key == 'C-c' else 0}")
    finally:
        tmux("kill-server")
    assert (cache / "models--o--n").exists() == is_kept
