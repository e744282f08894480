"""Opening a file takes less memory than twice its size and 64 MB over `import edgert`, whatever the file says.

Each is opened in a process of its own, which reports the peak of its resident memory.
"""

import json
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fuzz import mutations, seed_models

from .gguf_bytes import ARRAY, F32, I32, I64, STRING, U8, gguf, key_value, string, tensor
from .malformed import CORPUS
from .own_folder import tensor_file

FREE_BYTES = 64 << 20
NUM_MUTATIONS = int(os.environ.get("EDGERT_TEST_MEMORY_MUTATIONS", "12"))
PEAK = """
import json, os, re, sys
def peak_bytes():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
import edgert
before = peak_bytes()
try:
    edgert.load(sys.argv[1], threads=2).close()
    answer = "opened"
except edgert.EdgertError as error:
    answer = str(error)
print(json.dumps({"growth": peak_bytes() - before, "answer": answer}))
"""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs /proc/self/status for the peak of the memory"
)


def size_of(path: Path) -> int:
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) if path.is_dir() else path.stat().st_size


def check(path: Path) -> str:
    """What opening said."""
    run = subprocess.run([sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    limit = 2 * size_of(path) + FREE_BYTES
    assert found["growth"] < limit, f"{found['growth'] / 1e6:.1f} MB, at most {limit / 1e6:.1f}: {found['answer']}"
    return str(found["answer"])


def numbers(kind: int, letter: str, count: int, value: float) -> bytes:
    raw = struct.pack(f"<IQ{count}{letter}", kind, count, *[value] * count)
    return gguf([key_value("tokenizer.ggml.scores", ARRAY, raw)])


def strings(count: int, text: str) -> bytes:
    return gguf([key_value("tokenizer.ggml.tokens", ARRAY, struct.pack("<IQ", STRING, count) + string(text) * count)])


def json_file(text: str) -> Callable[[Path], Path]:
    def build(place: Path) -> Path:
        (place / "config.json").write_text(text)
        return place

    return build


def weights_file(raw: bytes, name: str = "model.safetensors") -> Callable[[Path], Path]:
    def build(place: Path) -> Path:
        (place / "config.json").write_text('{"model_type": "llama"}')
        (place / name).write_bytes(raw)
        return place if name.endswith(".safetensors") else place / name

    return build


def header(text: str) -> Callable[[Path], Path]:
    return weights_file(struct.pack("<Q", len(text.encode())) + text.encode())


# Small files that stand for as much memory as their format allows.
GREEDY: dict[str, Callable[[Path], Path]] = {
    "many floats": weights_file(numbers(F32, "f", 2_000_000, 0.1), "m.gguf"),
    "many integers": weights_file(numbers(I32, "i", 2_000_000, 77777), "m.gguf"),
    "many long integers": weights_file(numbers(I64, "q", 1_500_000, 2**60), "m.gguf"),
    "many bytes": weights_file(numbers(U8, "B", 4_000_000, 200), "m.gguf"),
    "many short strings": weights_file(strings(2_000_000, "ab"), "m.gguf"),
    "many strings beyond ASCII": weights_file(strings(500_000, "a\U0001f600bcdefgh"), "m.gguf"),
    "long strings beyond ASCII": weights_file(strings(40, "\U0001f600" + "a" * 1_000_000), "m.gguf"),
    "many key-values": weights_file(gguf([key_value(f"{i:05}", U8, b"\0") for i in range(60_000)]), "m.gguf"),
    "many tensors": weights_file(
        gguf(tensors=[tensor(f"{i:05}", (8,), 0, 32 * i) for i in range(60_000)], content=32 * 60_000), "m.gguf"
    ),
    "counts of 2^40": weights_file(gguf(num_tensors=2**40, num_key_values=2**16, content=1 << 20), "m.gguf"),
    "a tensor of exabytes": weights_file(gguf(tensors=[tensor("a", (2**31 - 1,) * 2, 0, 0)], content=64), "m.gguf"),
    "config of empty lists": json_file('{"a": [' + "[]," * 2_000_000 + "1]}"),
    "config of objects": json_file("{" + ",".join(f'"{i}":0' for i in range(2_000_000)) + "}"),
    "config of one string": json_file('{"a": "' + "a" * (30 << 20) + '"}'),
    "config of one string beyond ASCII": json_file('{"a": "\U0001f600' + "a" * (30 << 20) + '"}'),
    "config just below the limits": json_file('{"a": "\U0001f600' + "a" * (8_000_000) + '"}'),
    "header of entries": header("{" + ",".join(f'"{i}":0' for i in range(3_000_000)) + "}"),
    "header of tensors": header(
        json.dumps({f"{i}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(200_000)})
    ),
    "header of one string": header('{"__metadata__": {"a": "' + "a" * (60 << 20) + '"}}'),
    "tensors inside a string": weights_file(
        tensor_file({"a": b"1234"}, {"edgert.format_version": "1", "edgert.tensors": '{"a": [' + "[]," * 2**21 + "1]}"})
    ),
}


@pytest.mark.parametrize("name", GREEDY)
def test_greedy_files(tmp_path: Path, name: str) -> None:
    assert check(GREEDY[name](tmp_path)) != "opened"


@pytest.mark.parametrize("name", list(CORPUS)[:: max(1, len(CORPUS) // 20)])
def test_a_sample_of_the_corpus(tmp_path: Path, name: str) -> None:
    check(CORPUS[name].build(tmp_path))


def test_valid_models_and_mutations_of_them(tmp_path: Path) -> None:
    seed = int(os.environ.get("EDGERT_TEST_SEED") or random.SystemRandom().getrandbits(32))
    print(f"EDGERT_TEST_SEED={seed}")
    seeds, scratch = tmp_path / "seeds", tmp_path / "mutated"
    seeds.mkdir()
    scratch.mkdir()
    seed_models.write_seeds(seeds, seed)
    for model in seed_models_of(seeds):
        assert check(model) == "opened"
    for number in range(NUM_MUTATIONS):
        check(mutations.main_file(mutations.mutation(seeds, scratch, seed, number)))


def seed_models_of(seeds: Path) -> list[Path]:
    return [mutations.main_file(model) for model in mutations.seed_models(seeds)]


def test_the_bundled_model() -> None:
    import edgert

    assert check(Path(edgert.__file__).parent / "assets" / "default") == "opened"
