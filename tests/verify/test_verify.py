"""`edgert verify`: whole models pass, and any damaged byte is found."""

import hashlib
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fuzz import seed_models

from edgert.errors import EdgertError, FileFormatError
from edgert.verify import verify

COMMAND = [sys.executable, "-m", "edgert", "verify"]
FLIPS = 60  # in each file of the folder


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, cwd="/")


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Valid models of every kind."""
    folder = tmp_path_factory.mktemp("seeds")
    seed_models.write_seeds(folder, 1)
    return folder


@pytest.fixture
def copied(seeds: Path, tmp_path: Path) -> Path:
    """Our folder in p4."""
    return Path(shutil.copytree(seeds / "p4", tmp_path / "p4"))


def error_of(path: Path) -> EdgertError:
    error = verify(path).error
    assert error is not None
    return error


@pytest.mark.parametrize(
    "name",
    ["huggingface", "shards", "byte_level.gguf", "sentencepiece.gguf", "split/m-00001-of-00002.gguf", "p4", "p2"],
)
def test_a_whole_model_is_whole(seeds: Path, name: str) -> None:
    report = verify(seeds / name)
    assert [f.message for f in report.findings if f.level == "error"] == []
    assert not report.error
    files = [f.file for f in report.findings if f.level == "ok"]
    model = (seeds / name).parent if name.startswith("split") else seeds / name
    wanted = list(model.iterdir()) if model.is_dir() else [model]
    assert {file.name for file in files} == {file.name for file in wanted} - {"SHA256SUMS"}
    assert report.num_bytes == sum(file.stat().st_size for file in files)


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs the sha256sum command")
def test_the_checksums_are_those_of_sha256sum(copied: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=copied, check=True, capture_output=True)
    listed = {line.split()[1] for line in (copied / "SHA256SUMS").read_text().splitlines()}
    assert listed == {path.name for path in copied.iterdir()} - {"SHA256SUMS"}


def flip(path: Path, place: int, bits: int) -> None:
    with open(path, "r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ bits]))


def test_any_flipped_byte_of_our_folder_is_found(copied: Path) -> None:
    seed = int(os.environ.get("EDGERT_TEST_SEED") or random.SystemRandom().getrandbits(32))
    rng = random.Random(seed)
    for path in sorted(copied.iterdir()):
        for _ in range(FLIPS):
            place, bits = rng.randrange(path.stat().st_size), rng.randrange(1, 256)
            flip(path, place, bits)
            assert verify(copied).error, f"EDGERT_TEST_SEED={seed}: {path.name}, byte {place} ^ {bits}"
            flip(path, place, bits)
    assert not verify(copied).error


def test_the_weights_are_covered_by_their_own_checksums(copied: Path) -> None:
    """Without SHA256SUMS, as in folders of older versions: every byte of the data, padding included."""
    (copied / "SHA256SUMS").unlink()
    assert [f.message.split(": ")[1] for f in verify(copied).findings if f.level == "warning"] == [
        "found no SHA256SUMS"
    ]
    seed = int(os.environ.get("EDGERT_TEST_SEED") or random.SystemRandom().getrandbits(32))
    rng = random.Random(seed)
    path = copied / "model.safetensors"
    (length,) = struct.unpack("<Q", path.read_bytes()[:8])
    for _ in range(4 * FLIPS):
        place, bits = rng.randrange(8 + length, path.stat().st_size), rng.randrange(1, 256)
        flip(path, place, bits)
        error = error_of(copied)
        assert re.search("crc32|not zero", str(error)), f"EDGERT_TEST_SEED={seed}: byte {place} ^ {bits}"
        flip(path, place, bits)


def test_a_file_that_the_checksums_do_not_know(copied: Path) -> None:
    (copied / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert "found no line in SHA256SUMS" in str(error_of(copied))


def test_a_file_that_is_gone(copied: Path) -> None:
    (copied / "tokenizer_config.json").unlink()
    assert "tokenizer_config.json: found no such file" in str(error_of(copied))


NAN = {"f16": b"\x00\x7e", "bf16": b"\xc0\x7f", "f32": b"\x00\x00\xc0\x7f"}


def test_a_weight_that_is_no_number(seeds: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(seeds / "huggingface", tmp_path / "m"))
    path = folder / "model.safetensors"
    with open(path, "r+b") as file:
        file.seek(-6, os.SEEK_END)
        file.write(NAN["f16"] + b"\x00\xfc")  # and minus infinity
    error = error_of(folder)
    assert type(error) is FileFormatError
    assert "found 2 values that are infinite or no numbers" in str(error)


@pytest.mark.parametrize(("kind", "block_bytes"), [("q8_0", 34), ("f32", 4)])
def test_a_scale_of_a_gguf_file_that_is_no_number(seeds: Path, tmp_path: Path, kind: str, block_bytes: int) -> None:
    from edgert.files import open_checkpoint

    path = Path(shutil.copyfile(seeds / "byte_level.gguf", tmp_path / "m.gguf"))
    entry = next(t for t in open_checkpoint(path).tensors.values() if t.format == kind)
    with open(path, "r+b") as file:
        file.seek(entry.offset + 2 * block_bytes)
        file.write(NAN["f16" if kind == "q8_0" else kind])
    assert f"tensor {entry.name!r}" in str(error_of(path)) and "found 1 values" in str(error_of(path))


def test_every_ggml_type_with_scales_knows_where_they_lie() -> None:
    """Against the gguf package: a float16 NaN at our offsets makes the block dequantise to NaN, and nowhere else."""
    gguf = pytest.importorskip("gguf", reason="compares with the gguf package, which is not installed")
    from edgert.verify.weights import _BLOCK_BYTES, _BLOCK_SCALES

    for name, places in _BLOCK_SCALES.items():
        kind = getattr(gguf.GGMLQuantizationType, name.upper())
        found = []
        for place in range(0, _BLOCK_BYTES[name] - 1):
            block = np.zeros(_BLOCK_BYTES[name], np.uint8)
            block[place : place + 2] = np.frombuffer(NAN["f16"], np.uint8)
            with np.errstate(all="ignore"):
                values = gguf.quants.dequantize(block, kind)
            if np.isnan(values).any():
                found.append(place)
        assert found == list(places), name


def test_exponents_that_give_infinite_weights_are_counted() -> None:
    """Against the gguf package: which exponents of an mxfp4 block leave its largest value finite."""
    gguf = pytest.importorskip("gguf", reason="compares with the gguf package, which is not installed")
    from edgert.verify.weights import _values

    block_bytes, num_bad = _values("mxfp4")
    for exponent in range(256):
        block = np.full(block_bytes, 0x77, np.uint8)  # the code of 6 and no other
        block[0] = exponent
        with np.errstate(all="ignore"):
            values = gguf.quants.dequantize(block, gguf.GGMLQuantizationType.MXFP4)
        assert num_bad(block.tobytes()) == (not np.isfinite(values).all()), exponent


def test_every_part_with_floats_is_known() -> None:
    from edgert.quant import format as formats
    from edgert.verify.weights import _FLOAT_PARTS

    whole_numbers = {"byte", "nibble", "field", "bits", "plane", "table", "trit", "subscale", "submin", "values"}
    parts = {part.name.rstrip("12345") for name in formats.names() for part in formats.get(name).spec.parts}
    assert parts <= whole_numbers | {*_FLOAT_PARTS, "exponent"}


@pytest.fixture
def hub(seeds: Path, tmp_path: Path) -> Path:
    """The Hugging Face folder as its cache keeps it: weights by sha256, the rest by what git calls it."""
    repository = tmp_path / "models--org--name"
    snapshot = repository / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for path in sorted((seeds / "huggingface").iterdir()):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if path.suffix == ".json":
            digest = subprocess.check_output(["git", "hash-object", str(path)], text=True).strip()
        shutil.copyfile(path, repository / "blobs" / digest)
        (snapshot / path.name).symlink_to(f"../../blobs/{digest}")
    return snapshot


def test_the_hub_cache_names_files_by_their_checksums(hub: Path) -> None:
    report = verify(hub)
    assert not report.error
    messages = {f.file.name: f.message for f in report.findings}
    assert "sha256 as the name in the Hugging Face cache says" in messages["model.safetensors"]
    assert "git as the name" in messages["config.json"]


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_damaged_blob_is_found(hub: Path, name: str) -> None:
    path = (hub / name).resolve()
    content = path.read_bytes()
    place = len(content) - 40 if name == "model.safetensors" else content.index(b"[PAD299]") + 5
    flip(path, place, 1)
    assert "by the name in the Hugging Face cache" in str(error_of(hub))


def test_all_findings_are_listed_and_the_first_error_ends_it(copied: Path) -> None:
    (copied / "tokenizer.json").write_text("{")
    flip(copied / "model.safetensors", (copied / "model.safetensors").stat().st_size - 1, 1)
    done = run(copied)
    errors = [line for line in done.stdout.splitlines() if line.startswith("error ")]
    assert done.returncode == 1 and len(errors) >= 4
    assert done.stderr.count("\n") == 1
    assert done.stderr.strip().removeprefix("error: ") == errors[0].removeprefix("error").strip()


def test_json_says_the_same(copied: Path) -> None:
    done = run(copied, "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["is_whole"]) == (0, True)
    assert {f["level"] for f in answer["findings"]} == {"ok"}
    (copied / "model.safetensors").write_bytes((copied / "model.safetensors").read_bytes()[:-100])
    done = run(copied, "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["is_whole"]) == (1, False)
    assert "file holds" in answer["findings"][0]["message"]


def test_without_a_model_it_verifies_the_bundled_one() -> None:
    done = run()
    assert (done.returncode, done.stderr.count("whole:")) == (0, 1)


def test_memory_does_not_depend_on_the_model(tmp_path: Path) -> None:
    """A file of 400 MB of zeros (it takes no room on the disk) within 64 MB of what a small one takes."""
    from files.gguf_bytes import gguf, tensor  # tests/files

    peak = (
        "import re, sys; from pathlib import Path; from edgert.verify import verify; verify(Path(sys.argv[1])); "
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc/self/status for the peak of the memory")
    peaks = []
    for rows in (10, 10_000_000):
        path = tmp_path / "m.gguf"
        path.write_bytes(gguf(tensors=[tensor("a", (10, rows), 0, 0)], content=0))
        with open(path, "r+b") as file:
            file.truncate(path.stat().st_size + 40 * rows)
        peaks.append(int(subprocess.check_output([sys.executable, "-c", peak, str(path)], text=True)))
    assert peaks[1] - peaks[0] < 64 << 10
