"""Names, the choice of files, and the place of the cache: no network."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgert.errors import HubError, ModelNotFoundError
from edgert.hub import resolve_model
from edgert.hub.cache import cache_folder
from edgert.hub.choose import choose_files
from edgert.hub.names import HubName, is_safe_path, parse_name

Q4, Q8 = "m-Q4_K_M.gguf", "m-Q8_0.gguf"
PARTS = tuple(f"BF16/m-BF16-{n:05}-of-00003.gguf" for n in (1, 2, 3))
FOLDER = ("config.json", "tokenizer.json", "model.safetensors")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org/name", HubName("org/name")),
        ("org/name-GGUF:q4_k_m", HubName("org/name-GGUF", "q4_k_m")),
        ("o.r_g/n-1.5:BF16/m-00001-of-00003.gguf", HubName("o.r_g/n-1.5", "BF16/m-00001-of-00003.gguf")),
        ("name", None),
        ("a/b/c", None),
        ("./a", None),
        ("../a", None),
        ("/a/b", None),
        ("a/..", None),
        ("a--b/c", None),
        ("a/b:", None),
        ("a/b:../c", None),
        ("a/b:/etc/passwd", None),
        ("a/b:c\x1b[2J", None),
        ("a b/c", None),
        ("", None),
    ],
)
def test_what_a_name_is(text: str, expected: "HubName | None") -> None:
    assert parse_name(text) == expected
    if expected:
        assert str(expected) == text


@pytest.mark.parametrize(
    "path",
    ["../x", "/x", "a/../b", "a//b", ".", "..", "", "a/.", "a\0b", "a\nb", "a\\b", "C:x", "x" * 2000, "a/b/", "x."],
)
def test_an_evil_path_is_none(path: str) -> None:
    assert not is_safe_path(path)


@pytest.mark.parametrize("path", ["x", ".gitattributes", "a/b.gguf", "a b (1).gguf", "模型.gguf"])
def test_an_odd_path_is_one(path: str) -> None:
    assert is_safe_path(path)


@pytest.mark.parametrize(
    ("file", "listed", "expected"),
    [
        (None, (Q4, "README.md"), ((Q4,), Q4)),
        (None, (Q4, "mmproj-m-f16.gguf"), ((Q4,), Q4)),
        (None, PARTS, (PARTS, PARTS[0])),
        (None, (*FOLDER, Q4, "pytorch_model.bin", "modeling.py", "consolidated.safetensors"), (FOLDER, None)),
        (None, ("config.json", Q4), ((Q4,), Q4)),
        ("q4_k_m", (Q4, Q8), ((Q4,), Q4)),
        ("Q8_0", (Q4, Q8, "m.Q8_0.gguf.sha256"), ((Q8,), Q8)),
        ("bf16", (Q4, *PARTS), (PARTS, PARTS[0])),
        (PARTS[1], (Q4, *PARTS), (PARTS, PARTS[0])),
        (Q8, (Q4, Q8), ((Q8,), Q8)),
        ("consolidated.safetensors", (*FOLDER, "consolidated.safetensors"), None),
    ],
)
def test_which_files_a_name_means(
    file: "str | None", listed: tuple[str, ...], expected: "tuple[tuple[str, ...], str | None] | None"
) -> None:
    choice = choose_files(HubName("o/n", file), dict.fromkeys(listed, 1))
    if expected is None:
        assert choice.entry == file
        assert choice.files == (*FOLDER[:2], file)
    else:
        assert (choice.files, choice.entry) == expected


def test_a_name_that_claims_many_pieces_is_one_file() -> None:
    name = "m-00001-of-99999.gguf"
    assert choose_files(HubName("o/n"), {name: 1}).files == (name,)


def test_shards_come_with_their_index() -> None:
    shards = [f"model-{n:05}-of-00002.safetensors" for n in (1, 2)]
    listed = ["config.json", "model.safetensors.index.json", *shards, "consolidated-00001-of-00001.safetensors"]
    choice = choose_files(HubName("o/n"), dict.fromkeys(listed, 1))
    assert choice.files == ("config.json", "model.safetensors.index.json", *shards)


@pytest.mark.parametrize(
    ("file", "listed", "message"),
    [
        (None, (Q4, Q8), f"{Q4} (0.0 MB), {Q8} (0.0 MB), expected one model; name one as o/n:FILE"),
        ("M.gguf", (Q4,), f"found {Q4} (0.0 MB), expected 'M.gguf'"),
        ("q8", (Q4, Q8), "expected one that 'q8' names"),
        ("q4_k_m", (Q4, f"x/{Q4}"), f"found {Q4}"),
        (None, ("pytorch_model.bin", "config.json"), "a pickle can run code"),
        ("pytorch_model.bin", ("pytorch_model.bin",), "expected .gguf or .safetensors"),
        ("modeling.py", ("modeling.py",), "expected .gguf or .safetensors"),
        (None, ("README.md",), "found README.md, expected safetensors with config.json, or GGUF"),
        (None, (), "found no file"),
        (None, PARTS[:2], f"found 2 of the 3 files of {PARTS[0]}, expected all; {PARTS[2]} is missing"),
    ],
)
def test_what_cannot_be_chosen(file: "str | None", listed: tuple[str, ...], message: str) -> None:
    with pytest.raises((HubError, ModelNotFoundError)) as error:
        choose_files(HubName("o/n", file), dict.fromkeys(listed, 1))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HF_HUB_CACHE": "/a/b", "HF_HOME": "/c"}, "/a/b"),
        ({"HF_HOME": "/c"}, "/c/hub"),
        ({"XDG_CACHE_HOME": "/d"}, "/d/huggingface/hub"),
        ({"HOME": "/e"}, "/e/.cache/huggingface/hub"),
        ({"HOME": "/e", "HF_HOME": "~/x/$Y", "Y": "z"}, "/e/x/z/hub"),
    ],
)
def test_where_the_cache_lies(variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(key, raising=False)
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    assert str(cache_folder()) == expected


def put(cache: Path, repo: str, files: dict[str, bytes], revision: str = "a" * 40, ref: "str | None" = "main") -> Path:
    """A snapshot in the cache, as the hub's own library lays it out (docs of huggingface_hub, "manage cache")."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    snapshot = folder / "snapshots" / revision
    for name, content in files.items():
        blob = folder / "blobs" / hashlib.sha256(content).hexdigest()
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        link = snapshot / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    if ref:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / ref).write_text(revision)
    return snapshot


def test_a_path_goes_before_a_name(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    snapshot = put(cache, "o/n", {Q4: b"x"})
    assert resolve_model("o/n") == snapshot / Q4
    assert resolve_model("o/n:q4_k_m") == snapshot / Q4
    (tmp_path / "o" / "n").mkdir(parents=True)
    assert resolve_model("o/n") == Path("o/n")
    assert resolve_model("nothing") == Path("nothing")


def test_main_goes_before_newer_revisions(cache: Path) -> None:
    main = put(cache, "o/n", {Q4: b"1"})
    put(cache, "o/n", {Q4: b"2", Q8: b"3"}, revision="b" * 40, ref=None)
    assert resolve_model(f"o/n:{Q4}") == main / Q4
    assert resolve_model(f"o/n:{Q8}").parent.name == "b" * 40


def test_several_models_are_no_reason_to_take_an_older_revision(cache: Path) -> None:
    put(cache, "o/n", {Q4: b"2", Q8: b"3"})
    put(cache, "o/n", {Q4: b"1"}, revision="b" * 40, ref=None)
    with pytest.raises(HubError, match=r"expected one model; name one as o/n:FILE$"):
        resolve_model("o/n")


def test_a_path_that_is_there_costs_no_imports(cache: Path) -> None:
    code = (
        "import sys, edgert.files\n"
        "try: edgert.files.open_checkpoint('.')\n"
        "except edgert.EdgertError as error: print('no GGUF file' in str(error))\n"
        "print([m for m in sys.modules if m.startswith(('edgert.hub.', 'huggingface_hub'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=cache.parents[1])
    assert done.stdout.splitlines() == ["True", "[]"], done.stderr


def test_what_the_cache_lacks(cache: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"o/n: not in the cache \(.*/hub\), .*; run: edgert pull o/n"):
        resolve_model("o/n")
    put(cache, "o/n", {Q4: b"x"})
    with pytest.raises(ModelNotFoundError, match=r"expected one that 'q8_0' names.*or run: edgert pull o/n:q8_0"):
        resolve_model("o/n:q8_0")
    index = b'{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}'
    files = {"config.json": b"{}", "model.safetensors.index.json": index, "model-00001-of-00002.safetensors": b""}
    put(cache, "o/sharded", files)
    with pytest.raises(ModelNotFoundError, match=r"found no model-00002-of-00002.safetensors .*; run: edgert pull"):
        resolve_model("o/sharded")


def test_a_link_out_of_the_cache_is_no_file_of_it(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.gguf").write_bytes(b"x")
    snapshot = put(cache, "o/n", {"README.md": b"x"})
    (snapshot / "m.gguf").symlink_to(tmp_path / "secret.gguf")
    with pytest.raises(ModelNotFoundError, match=r"expected safetensors with config.json, or GGUF"):
        resolve_model("o/n")
