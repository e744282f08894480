"""`edgert pull` in a process of its own, from a hub in another."""

import fcntl
import hashlib
import os
import random
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest

from .conftest import COMMAND, Hub, Run, blobs

ASSETS = Path(__file__).resolve().parents[2] / "edgert" / "assets" / "default"
SEED = int(os.environ.get("EDGERT_TEST_SEED", "1"))
BIG = random.Random(SEED).randbytes(3 << 20)
BIG_NAME = "m-Q4_K_M.gguf"
BIG_SHA = hashlib.sha256(BIG).hexdigest()


def tiny_model() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(ASSETS.iterdir()) if path.name != "README.md"}


def test_a_pulled_model_runs(hub: Hub, pull: Run, edgert: Run, cache: Path) -> None:
    extra = {"pytorch_model.bin": b"x", "modeling.py": b"x", "consolidated.safetensors": b"x", "README.md": b"x"}
    commit = hub.add("org/tiny", {**tiny_model(), **extra})
    done = pull("org/tiny")
    assert done.returncode == 0, done.stderr
    snapshot = cache / "models--org--tiny" / "snapshots" / commit
    assert done.stdout == f"{snapshot}\n"
    assert 'run it: edgert run org/tiny "Hello"\n' in done.stderr
    assert sorted(path.name for path in snapshot.iterdir()) == sorted(tiny_model())
    assert (snapshot.parents[1] / "refs" / "main").read_text() == commit
    for path in snapshot.iterdir():
        assert path.is_symlink()
        assert path.read_bytes() == tiny_model()[path.name]
    by_path = edgert("run", str(snapshot), "Hello", "-n", "4", "--temp", "0")
    by_name = edgert("run", "org/tiny", "Hello", "-n", "4", "--temp", "0")
    assert by_name.returncode == 0, by_name.stderr
    assert by_name.stdout == by_path.stdout != ""


def test_nothing_but_the_listing_and_the_files_is_asked_for(hub: Hub, pull: Run) -> None:
    commit = hub.add("org/tiny", {**tiny_model(), "README.md": b"x"})
    assert pull("org/tiny").returncode == 0
    expected = [f"/org/tiny/resolve/{commit}/{name}" for name in tiny_model()]
    assert sorted(request["path"] for request in hub.requests) == sorted(
        ["/api/models/org/tiny/revision/main", *expected]
    )
    for request in hub.requests:
        assert "telemetry" not in request["user-agent"]
        assert "authorization" not in request
    before = len(hub.requests)
    again = pull("org/tiny")
    assert again.returncode == 0
    assert "0.0 MB of them downloaded now" in again.stderr
    assert [request["path"] for request in hub.requests[before:]] == ["/api/models/org/tiny/revision/main"]


def test_huggingface_hub_finds_what_was_pulled(hub: Hub, pull: Run, cache: Path) -> None:
    """The layout is the hub's: its own library takes every file from the cache, without a request."""
    hub.add("org/tiny", tiny_model())
    path = pull("org/tiny").stdout.strip()
    code = (
        "import huggingface_hub as h\n"
        f"for name in {list(tiny_model())}: print(h.hf_hub_download('org/tiny', name))\n"
        "print(len(h.scan_cache_dir().repos), h.scan_cache_dir().warnings)"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [*(f"{path}/{name}" for name in tiny_model()), "1 []"]


def test_a_quantisation_a_file_and_a_split_model(hub: Hub, pull: Run, edgert: Run) -> None:
    pieces = {f"Q8_0/m-Q8_0-{n:05}-of-00002.gguf": bytes([n]) * 999 for n in (1, 2)}
    hub.add("org/ggufs", {BIG_NAME: b"abc", "m-IQ2_M.gguf": b"de", **pieces})
    done = pull("org/ggufs:q4_k_m")
    assert done.stdout.endswith(f"/{BIG_NAME}\n")
    assert "edgert run org/ggufs:q4_k_m" in done.stderr
    split = pull("org/ggufs:q8_0")
    assert split.stdout.endswith("/Q8_0/m-Q8_0-00001-of-00002.gguf\n")
    assert (Path(split.stdout.strip()).parent / "m-Q8_0-00002-of-00002.gguf").read_bytes() == b"\2" * 999
    listed = edgert("list")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["FORMAT", "gguf", "gguf"]
    several = pull("org/ggufs")
    assert several.returncode == 1
    assert several.stderr.startswith("error: org/ggufs: found Q8_0/m-Q8_0-00001-of-00002.gguf (0.0 MB), m-IQ2_M.gguf")
    assert several.stdout == ""


def test_it_goes_on_when_the_server_drops_the_connection(hub: Hub, pull: Run, cache: Path) -> None:
    hub.add("org/big", {BIG_NAME: BIG})
    hub.set(drop_after=2 << 20)
    done = pull("org/big")
    assert done.returncode == 0, done.stderr
    ranges = [request.get("range") for request in hub.requests if "/resolve/" in request["path"]]
    assert ranges[0] is None
    assert len(ranges) == 2
    assert ranges[1] is not None
    begin = int(ranges[1].removeprefix("bytes=").rstrip("-"))
    assert 0 < begin <= 2 << 20
    assert Path(done.stdout.strip()).read_bytes() == BIG


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_ctrl_c_keeps_what_came_and_the_next_pull_goes_on(hub: Hub, pull: Run, cache: Path, knows_ranges: bool) -> None:
    hub.add("org/big", {BIG_NAME: BIG})
    hub.set(pause_s=0.5)
    running = subprocess.Popen(
        [*COMMAND, "pull", "org/big"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "HF_ENDPOINT": hub.url},
    )
    partial = cache / "models--org--big" / "blobs" / f"{BIG_SHA}.incomplete"
    wait_until(lambda: partial.exists() and partial.stat().st_size > 0)
    running.send_signal(signal.SIGINT)
    out, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert out == ""
    assert errors.startswith("stopped; what came is kept: edgert pull org/big goes on from there\n")
    assert blobs(cache) == [f"{BIG_SHA}.incomplete"]
    assert list(cache.glob("models--*/snapshots/*/*")) == []
    kept = partial.stat().st_size
    assert 0 < kept < len(BIG)
    assert BIG.startswith(partial.read_bytes())
    hub.set(pause_s=0, knows_ranges=knows_ranges)
    done = pull("org/big")
    assert done.returncode == 0, done.stderr
    assert f"bytes={kept}-" in [request.get("range") for request in hub.requests]
    assert blobs(cache) == [BIG_SHA]
    assert Path(done.stdout.strip()).read_bytes() == BIG


def test_a_wrong_checksum_leaves_nothing(hub: Hub, pull: Run, cache: Path) -> None:
    hub.add("org/bad", {BIG_NAME: b"damaged"}, listed_sha256="0" * 64)
    done = pull("org/bad")
    assert_one_line(done, f"{BIG_NAME}: found checksum ")
    assert hashlib.sha256(b"damaged").hexdigest() in done.stderr
    assert blobs(cache) == []
    assert list(cache.glob("models--*/snapshots/*/*")) == []


def test_a_small_file_has_a_checksum_too(hub: Hub, pull: Run) -> None:
    hub.add("org/bad", {"config.json": b"{}", "model.safetensors": b"x"}, git="0" * 40)
    (hub.folder / ("0" * 40)).write_bytes(b"[]")
    assert_one_line(pull("org/bad"), "config.json: found checksum ")


@pytest.mark.parametrize("listed_bytes", [3, 8])
def test_a_size_that_is_not_as_listed(hub: Hub, pull: Run, cache: Path, listed_bytes: int) -> None:
    hub.add("org/lies", {BIG_NAME: b"12345"}, listed_bytes=listed_bytes)
    expected = "found more bytes than the 3 of the listing" if listed_bytes == 3 else "found 5 of 8 bytes"
    assert_one_line(pull("org/lies"), f"{BIG_NAME}: {expected}")
    assert list(cache.glob("models--*/snapshots/*/*")) == []


@pytest.mark.parametrize(
    "name",
    ["../../../../evil.gguf", "/tmp/evil.gguf", "a/../../evil.gguf", "..\\evil.gguf", "a\x1b[31m.gguf", "a//b.gguf"],
)
def test_an_evil_name_in_the_listing(hub: Hub, pull: Run, tmp_path: Path, name: str) -> None:
    hub.add("org/evil", {name: b"x"})
    done = pull("org/evil")
    assert_one_line(done, "org/evil: found a file named ")
    assert "\x1b" not in done.stderr
    assert "do not trust this model" in done.stderr
    assert list(tmp_path.rglob("*evil*")) == []


@pytest.mark.parametrize(
    "garbage",
    [
        "<html>",
        "[]",
        '{"sha": "../../x", "id": "a", "siblings": []}',
        '{"id": "a", "siblings": [{"rfilename": 1}]}',
        "{}",
    ],
)
def test_an_answer_that_makes_no_sense(hub: Hub, pull: Run, garbage: str) -> None:
    hub.add("org/x", {BIG_NAME: b"x"})
    hub.set(garbage=garbage)
    assert_one_line(pull("org/x"), "org/x: ")


@pytest.mark.parametrize("listed", [{"listed_bytes": None}, {"listed_bytes": -1}, {"listed_sha256": "../x"}])
def test_a_listing_without_sizes_or_checksums(hub: Hub, pull: Run, listed: "dict[str, object]") -> None:
    hub.add("org/x", {BIG_NAME: b"x"}, **listed)
    assert_one_line(pull("org/x"), "org/x: ")


@pytest.mark.parametrize(
    ("arguments", "changes", "message"),
    [
        (["org/none"], {}, "org/none: not found at {url} (404), or it is private; check the name"),
        (["org/x"], {"token": "secret"}, "org/x: not found at {url} (401), or it is private"),
        (["org/x"], {"token": "s", "error_code": "GatedRepo"}, "accept its terms at {url}/org/x and set HF_TOKEN"),
        (["org/x"], {"statuses": {"/api": 403}}, "accept its terms at {url}/org/x and set HF_TOKEN"),
        (["org/x"], {"statuses": {"/api": 500}}, "org/x: {url} answers 500, expected the model; try again later"),
        (["org/x"], {"statuses": {"/org": 500}}, "org/x: {url} answers 500"),
        (["org/x", "--revision", "v9"], {}, "org/x: found no revision 'v9'"),
        (["org/x", "--revision", "../../x"], {}, "--revision: found '../../x'"),
        (["x"], {}, "x: found no hub name, expected ORG/NAME or ORG/NAME:FILE"),
        (["org/x:../y"], {}, "org/x:../y: found no hub name"),
    ],
)
def test_what_the_hub_refuses(
    hub: Hub, pull: Run, arguments: list[str], changes: "dict[str, object]", message: str
) -> None:
    hub.add("org/x", {BIG_NAME: b"x"})
    hub.set(**changes)
    assert_one_line(pull(*arguments), message.format(url=hub.url))


def test_the_token_goes_only_to_the_endpoint(hub: Hub, pull: Run, tmp_path: Path) -> None:
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    other = Hub(other_folder)
    try:
        hub.add("org/x", {BIG_NAME: BIG})
        other.add("org/x", {BIG_NAME: BIG})
        hub.set(token="secret", redirect_to=f"http://localhost:{other.port}")
        done = pull("org/x", HF_TOKEN="secret")
        assert done.returncode == 0, done.stderr
        assert Path(done.stdout.strip()).read_bytes() == BIG
        assert {request["authorization"] for request in hub.requests} == {"Bearer secret"}
        assert len(other.requests) == 1
        assert "authorization" not in other.requests[0]
        assert "secret" not in done.stderr
    finally:
        other.stop()


def test_a_server_that_is_gone(hub: Hub, pull: Run) -> None:
    hub.stop()
    assert_one_line(pull("org/x"), f"org/x: no connection to {hub.url}; check the network and HF_ENDPOINT")


def test_a_server_that_says_nothing(edgert: Run, hub: Hub) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = edgert("pull", "org/x", HF_ENDPOINT=url, HF_HUB_ETAG_TIMEOUT="1", HF_HUB_DOWNLOAD_TIMEOUT="1")
    assert_one_line(done, f"org/x: {url} gave no answer in time")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_certificate_that_nobody_signed(edgert: Run, hub: Hub, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve_tls, args=(listening, context), daemon=True).start()
        url = f"https://localhost:{listening.getsockname()[1]}"
        done = edgert("pull", "org/x", HF_ENDPOINT=url)
    assert_one_line(done, f"org/x: {url} shows a certificate that is not trusted")


def serve_tls(listening: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        try:
            context.wrap_socket(connection, server_side=True).close()
        except OSError:
            connection.close()


def test_offline(hub: Hub, pull: Run) -> None:
    hub.add("org/x", {BIG_NAME: b"x"})
    assert_one_line(pull("org/x", HF_HUB_OFFLINE="1"), "org/x: not (wholly) in the cache, and HF_HUB_OFFLINE forbids")
    path = pull("org/x").stdout
    before = len(hub.requests)
    done = pull("org/x", HF_HUB_OFFLINE="1")
    assert (done.returncode, done.stdout) == (0, path)
    assert len(hub.requests) == before


def test_without_the_extra(edgert: Run, cache: Path) -> None:
    code = "import sys; sys.modules['huggingface_hub'] = None; from edgert.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "pull", "org/x"], capture_output=True, text=True)
    assert_one_line(done, "huggingface_hub: not found")
    assert "run: pip install 'huggingface_hub>=1.0'" in done.stderr
    for command in (["list"], ["rm", "org/x"], ["run", "org/x", "hi"]):
        done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True)
        assert "huggingface_hub" not in done.stderr


def test_a_cache_that_cannot_be_written(hub: Hub, pull: Run, tmp_path: Path) -> None:
    hub.add("org/x", {BIG_NAME: b"x"})
    (tmp_path / "file").write_text("")
    assert_one_line(pull("org/x", HF_HUB_CACHE=str(tmp_path / "file" / "hub")), str(tmp_path / "file"))


def test_a_full_disk(hub: Hub, pull: Run, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small disk needs root: mount -t tmpfs failed")
    try:
        hub.add("org/big", {BIG_NAME: BIG})
        hub.add("org/sly", {BIG_NAME: BIG[: 2 << 20]}, listed_bytes=2 << 20)
        before = pull("org/big", HF_HUB_CACHE=str(small / "hub"))
        assert_one_line(before, f"{small}/hub: found ")
        assert "bytes free, expected 3,145,728 or more" in before.stderr
        assert not any("/resolve/" in request["path"] for request in hub.requests)
        # The room goes while the file comes.
        hub.set(pause_s=0.02)
        (small / "hub" / "models--org--sly").mkdir(parents=True)
        filler = threading.Thread(target=fill, args=(small,))
        filler.start()
        during = pull("org/sly", HF_HUB_CACHE=str(small / "hub"))
        filler.join()
        assert_one_line(during, "")
        assert list(small.glob("hub/models--*/snapshots/*/*")) == []
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def fill(folder: Path) -> None:
    """Takes a megabyte of the disk as soon as a download has begun."""
    wait_until(lambda: any(path.stat().st_size for path in folder.glob("hub/models--*/blobs/*.incomplete")))
    (folder / "filler").write_bytes(bytes(1 << 20))


def test_two_pulls_at_once(hub: Hub, edgert: Run, cache: Path) -> None:
    hub.add("org/big", {BIG_NAME: BIG})
    hub.set(pause_s=0.01)
    environment = {**os.environ, "HF_ENDPOINT": hub.url}
    running = [
        subprocess.Popen([*COMMAND, "pull", "org/big"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        for _ in range(2)
    ]
    paths = {process.communicate(timeout=60)[0].decode().strip() for process in running}
    assert [process.returncode for process in running] == [0, 0]
    (path,) = paths
    assert Path(path).read_bytes() == BIG
    assert blobs(cache) == [BIG_SHA]
    assert sum("/resolve/" in request["path"] for request in hub.requests) == 1


@pytest.mark.parametrize(("left", "is_noticed"), [(bytes(len(BIG) + 5), False), (bytes(999), True)])
def test_a_partial_file_that_is_none(hub: Hub, pull: Run, cache: Path, left: bytes, is_noticed: bool) -> None:
    """Too long: begun anew. Other bytes: the checksum says so, and the next pull begins anew."""
    hub.add("org/big", {BIG_NAME: BIG})
    partial = cache / "models--org--big" / "blobs" / f"{BIG_SHA}.incomplete"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(left)
    if is_noticed:
        assert_one_line(pull("org/big"), "found checksum")
    done = pull("org/big")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).read_bytes() == BIG


def test_progress_on_a_terminal(hub: Hub, cache: Path) -> None:
    hub.add("org/big", {BIG_NAME: BIG})
    hub.set(pause_s=0.05)
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    environment = {**os.environ, "HF_ENDPOINT": hub.url}
    running = subprocess.Popen(
        [*COMMAND, "pull", "org/big"], stdout=subprocess.PIPE, stderr=theirs, stdin=subprocess.DEVNULL, env=environment
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # how Linux says that nobody writes any more
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 0, shown
    assert re.search(rb"pulling org/big: \d+ %.* s left", shown), shown
    assert out.decode().endswith(f"/{BIG_NAME}\n")


def test_a_new_commit_takes_only_what_changed(hub: Hub, pull: Run, cache: Path) -> None:
    hub.add("org/x", {BIG_NAME: BIG, "config.json": b"{}"})
    pull("org/x")
    commit = hub.add("org/x", {BIG_NAME: BIG, "config.json": b"{ }"})
    before = len(hub.requests)
    done = pull("org/x")
    assert commit in done.stdout
    assert len(hub.requests) == before + 1
    assert (cache / "models--org--x" / "refs" / "main").read_text() == commit


def assert_one_line(done: "subprocess.CompletedProcess[str]", message: str) -> None:
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("error: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert message in done.stderr


def wait_until(is_so: "object") -> None:
    ends = time.monotonic() + 60
    while not is_so():  # type: ignore[operator]
        assert time.monotonic() < ends
        time.sleep(0.01)
