"""No file outside a model's folder is read, whatever links lie in the folder; the Hugging Face cache's own are."""

import json
import os
import shutil
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import edgert
from edgert.chat import load_chat_template
from edgert.errors import FileFormatError, ModelNotFoundError
from edgert.files import open_checkpoint
from edgert.loader import open_model

BUNDLED = Path(edgert.__file__).parent / "assets" / "default"
LEADS_OUT = "found a link to .*secret.*, expected a file inside"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole model in a folder of its own."""
    return Path(shutil.copytree(BUNDLED, tmp_path / "model"))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file that no model has any business with."""
    path = tmp_path / "secret"
    path.write_text('{"secret": 1}')
    return path


def open_all(path: Path) -> None:
    checkpoint = open_checkpoint(path)
    tokenizer = edgert.load_tokenizer(path)
    load_chat_template(checkpoint, tokenizer)


FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
ABSENT = ("special_tokens_map.json", "chat_template.jinja", "model.safetensors.index.json")


@pytest.mark.parametrize("name", [*FILES, *ABSENT])
def test_a_link_out_of_the_folder_is_refused(folder: Path, secret: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    if name == "model.safetensors.index.json":
        (folder / "model.safetensors").unlink()
    (folder / name).symlink_to(secret)
    with pytest.raises(FileFormatError, match=LEADS_OUT):
        open_all(folder)


@pytest.mark.parametrize("name", FILES)
def test_links_through_links_are_followed_to_their_end(folder: Path, secret: Path, name: str) -> None:
    (folder / "inside").symlink_to(secret)
    (folder / name).unlink()
    (folder / name).symlink_to("inside")
    with pytest.raises(FileFormatError, match=LEADS_OUT):
        open_all(folder)


def test_a_link_inside_the_folder_is_followed(folder: Path) -> None:
    (folder / "weights").mkdir()
    (folder / "model.safetensors").rename(folder / "weights" / "v2")
    (folder / "model.safetensors").symlink_to("weights/v2")
    open_all(folder)


def test_the_folder_itself_may_be_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "here").symlink_to(folder)
    open_all(tmp_path / "here")


def gguf_file(path: Path) -> Path:
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    return path


def test_a_file_that_the_user_names_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "m.gguf").symlink_to(gguf_file(tmp_path / "elsewhere" / "secret"))
    assert open_checkpoint(tmp_path / "m.gguf").real_files == (tmp_path / "elsewhere" / "secret",)


def test_a_gguf_file_that_was_found_in_a_folder_may_not(folder: Path, tmp_path: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "m.gguf").symlink_to(gguf_file(tmp_path / "secret"))
    with pytest.raises(FileFormatError, match=LEADS_OUT):
        open_checkpoint(folder)


def test_the_other_files_of_a_split_model_may_not(tmp_path: Path) -> None:
    def piece(number: int) -> bytes:
        def pair(key: str) -> bytes:
            return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", 2)

        numbers = pair("split.no") + struct.pack("<H", number) + pair("split.count") + struct.pack("<H", 2)
        return b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + numbers

    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "m-00001-of-00002.gguf").write_bytes(piece(0))
    other = folder / "m-00002-of-00002.gguf"
    other.write_bytes(piece(1))
    open_checkpoint(folder / "m-00001-of-00002.gguf")
    other.rename(tmp_path / "secret")
    other.symlink_to(tmp_path / "secret")
    with pytest.raises(FileFormatError, match=LEADS_OUT):
        open_checkpoint(folder / "m-00001-of-00002.gguf")


def test_weights_whose_file_became_a_link_are_not_loaded(folder: Path, tmp_path: Path) -> None:
    from edgert import _core
    from edgert.loader import load_weights

    model = open_model(folder)
    (folder / "model.safetensors").rename(tmp_path / "secret")
    (folder / "model.safetensors").symlink_to(tmp_path / "secret")
    with pytest.raises(FileFormatError, match=LEADS_OUT):
        load_weights(model, _core.WeightStore())
    # The core itself follows none, should one take the file's place after that look.
    with pytest.raises(OSError):
        _core.WeightStore().add_file(str(folder / "model.safetensors"))


@pytest.fixture
def hub(folder: Path, tmp_path: Path) -> Path:
    """The model as the Hugging Face cache keeps it; returns the snapshot."""
    repository = tmp_path / "hub" / "models--org--name"
    snapshot = repository / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for number, name in enumerate(FILES):
        (folder / name).rename(repository / "blobs" / f"{number:040x}")
        (snapshot / name).symlink_to(f"../../blobs/{number:040x}")
    return snapshot


def test_the_links_of_the_hub_cache_are_followed(hub: Path, tmp_path: Path) -> None:
    open_all(hub)
    assert open_checkpoint(hub).real_files == (hub.parents[1] / "blobs" / f"{2:040x}",)
    # HF_HUB_CACHE may be a link itself.
    (tmp_path / "cache").symlink_to(tmp_path / "hub")
    open_all(tmp_path / "cache" / "models--org--name" / "snapshots" / "0123abcd")


def test_a_folder_below_a_snapshot_may_use_its_blobs(hub: Path) -> None:
    (hub / "q4").mkdir()
    for name in FILES:
        (hub / "q4" / name).symlink_to(f"../{os.readlink(hub / name)}")
    open_all(hub / "q4")


def test_split_gguf_files_may_lie_in_the_cache(tmp_path: Path) -> None:
    from fuzz import seed_models

    tensors = seed_models.weights(np.random.default_rng(1))
    seed_models.write_split_gguf(tmp_path / "split", tensors)
    repository = tmp_path / "models--org--name"
    snapshot = repository / "snapshots" / "main" / "q8"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for number, path in enumerate(sorted((tmp_path / "split").iterdir())):
        path.rename(repository / "blobs" / f"{number:064x}")
        (snapshot / path.name).symlink_to(f"../../../blobs/{number:064x}")
    first = snapshot / "m-00001-of-00002.gguf"
    edgert.load(first, threads=1).close()
    assert len(open_checkpoint(first).files) == 2


@pytest.mark.parametrize("spot", ["out", "blob_is_a_link", "other_repository", "above_blobs", "below_blobs"])
def test_the_hub_cache_is_no_way_out(hub: Path, secret: Path, spot: str) -> None:
    repository = hub.parents[1]
    target = {
        "out": secret,
        "blob_is_a_link": repository / "blobs" / "f",
        "other_repository": repository.with_name("models--org--secret") / "blobs" / "a",
        "above_blobs": repository / "secret",
        "below_blobs": repository / "blobs" / "x" / "secret",
    }[spot]
    if spot == "blob_is_a_link":
        target.symlink_to(secret)
    elif target != secret:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("{}")
    (hub / "generation_config.json").unlink()
    (hub / "generation_config.json").symlink_to(target)
    with pytest.raises(FileFormatError, match=LEADS_OUT):
        open_all(hub)


def test_a_folder_that_only_looks_like_the_cache_gains_nothing(folder: Path, secret: Path) -> None:
    snapshot = folder / "models--a--b" / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    (folder / "models--a--b" / "blobs").symlink_to(secret.parent)
    (snapshot / "config.json").symlink_to("../../blobs/secret")
    with pytest.raises(FileFormatError, match=LEADS_OUT):
        open_checkpoint(snapshot)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkfifo, "found a device, pipe or socket"),
        (make_socket, "found a device, pipe or socket"),
        (os.mkdir, "found a folder"),
        (make_device, "found a link to /dev/zero"),
    ],
)
def test_what_is_no_file_is_not_opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, make: Callable[[Path], None], message: str
) -> None:
    (folder / name).unlink()
    monkeypatch.chdir(folder)  # a socket's path is short
    make(Path(name))
    with pytest.raises(FileFormatError, match=message):
        open_all(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
def test_a_broken_link_is_an_error_and_not_ignored(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).symlink_to("nothing")
    with pytest.raises(ModelNotFoundError, match=name):
        open_all(folder)


def test_a_device_that_the_user_names_is_refused() -> None:
    with pytest.raises(FileFormatError, match="found a device, pipe or socket"):
        open_checkpoint("/dev/zero")


def test_hard_links_are_files_like_any_other(folder: Path, tmp_path: Path) -> None:
    """Package managers install the bundled model as hard links into their cache."""
    os.link(folder / "config.json", tmp_path / "other")
    open_all(folder)


def test_convert_copies_nothing_from_outside(folder: Path, secret: Path) -> None:
    from edgert.convert.tokenizer_files import tokenizer_files

    assert "tokenizer.json" in tokenizer_files(open_checkpoint(folder))
    (folder / "vocab.json").symlink_to(secret)
    with pytest.raises(FileFormatError, match=LEADS_OUT):
        tokenizer_files(open_checkpoint(folder))


def test_the_index_still_names_files_of_the_folder_only(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../secret"}}))
    with pytest.raises(FileFormatError, match="expected a plain name inside the folder"):
        open_checkpoint(folder)
