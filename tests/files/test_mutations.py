"""Models with bytes changed at random: opening either works or raises an EdgertError, whatever the bytes are.

Each run takes a fresh seed, which a failure prints; EDGERT_TEST_SEED repeats one. EDGERT_TEST_MUTATIONS: how many.
"""

import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from edgert.errors import EdgertError
from edgert.files import open_checkpoint
from edgert.loader import open_model

GOLDEN = Path(__file__).parents[1] / "models" / "golden"
NUM_MUTATIONS = int(os.environ.get("EDGERT_TEST_MUTATIONS", "500"))
EDGES = [0, 1, 7, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
JSON_VALUES = [
    "0",
    "-1",
    "1e400",
    "null",
    "true",
    '""',
    "[]",
    "{}",
    "9" * 30,
    '"\\ud800"',
    "[[[[]]]]",
    "2147483648",
    "0.5",
]


def mutated(rng: random.Random, raw: bytes, header_bytes: int) -> bytes:
    """One of: cut off, bytes changed, a length or count changed, bytes put in or taken out; mostly in the header."""
    out = bytearray(raw)
    header_bytes = min(header_bytes, len(raw))
    at = rng.randrange(header_bytes)
    match rng.randrange(6):
        case 0:
            return bytes(out[: rng.randrange(len(out))])
        case 1:
            for _ in range(rng.randint(1, 8)):
                out[rng.randrange(header_bytes)] = rng.randrange(256)
        case 2:
            width, letter = rng.choice([(8, "<Q"), (4, "<I")])
            edge = rng.choice([*EDGES, rng.getrandbits(64)]) % 2 ** (8 * width)
            out[at : at + width] = struct.pack(letter, edge)
        case 3:
            out[at:at] = rng.randbytes(rng.randint(1, 64))
        case 4:
            del out[at : at + rng.randint(1, 64)]
        case 5:
            other = rng.randrange(header_bytes)
            length = rng.randint(1, 48)
            out[at : at + length] = out[other : other + length]
    return bytes(out)


def mutated_json(rng: random.Random, raw: bytes) -> bytes:
    """A value put in the place of another, or any mutation of the text."""
    if rng.random() < 0.4:
        return mutated(rng, raw, len(raw))
    text = raw.decode()
    colons = [i for i, c in enumerate(text) if c == ":"]
    start = rng.choice(colons) + 1
    end = min((i for i in (text.find(c, start) for c in ",}\n") if i >= 0), default=len(text))
    return (text[:start] + rng.choice(JSON_VALUES) + text[end:]).encode()


def run(place: Path, write: Callable[[random.Random], bytes], target: Path) -> None:
    seed = int(os.environ.get("EDGERT_TEST_SEED") or random.SystemRandom().getrandbits(32))
    num_opened = 0
    for number in range(NUM_MUTATIONS):
        rng = random.Random(f"{seed}:{number}")
        place.write_bytes(write(rng))
        try:
            open_checkpoint(target)
            open_model(target)
            num_opened += 1
        except EdgertError as error:
            assert len(str(error)) < 2000, f"EDGERT_TEST_SEED={seed}, mutation {number}"
        except BaseException as error:
            pytest.fail(f"EDGERT_TEST_SEED={seed}, mutation {number}: {type(error).__name__}: {error}")
    assert num_opened < NUM_MUTATIONS


@pytest.mark.parametrize("name", ["llama3", "qwen3_moe"])
def test_gguf(tmp_path: Path, name: str) -> None:
    raw = (GOLDEN / f"{name}.gguf").read_bytes()
    header_bytes = len(raw) - 60_000 if name == "llama3" else 12_000
    path = tmp_path / "m.gguf"
    run(path, lambda rng: mutated(rng, raw, min(header_bytes, 12_000)), path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    description = json.loads((GOLDEN / "llama_yarn.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(description["config"], indent=1))
    header, position = {}, 0
    for name, shape in description["shapes"].items():
        length = 4
        for size in shape:
            length *= size
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [position, position + length]}
        position += length
    text = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * position)
    return tmp_path


def test_safetensors(folder: Path) -> None:
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    length = struct.unpack_from("<Q", raw)[0]

    def write(rng: random.Random) -> bytes:
        if rng.random() < 0.5:
            return mutated(rng, raw, 8 + length)
        changed = mutated_json(rng, raw[8 : 8 + length])
        return struct.pack("<Q", len(changed)) + changed + raw[8 + length :]

    run(path, write, folder)


@pytest.mark.parametrize("name", ["llama_yarn", "llama_longrope", "qwen3_moe_mixed"])
def test_config_json(folder: Path, name: str) -> None:
    raw = json.dumps(json.loads((GOLDEN / f"{name}.json").read_text())["config"], indent=1).encode()
    run(folder / "config.json", lambda rng: mutated_json(rng, raw), folder)


def test_index_json(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    names = json.loads((GOLDEN / "llama_yarn.json").read_text())["shapes"]
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, "a.safetensors")}
    raw = json.dumps(index, indent=1).encode()
    run(folder / "model.safetensors.index.json", lambda rng: mutated_json(rng, raw), folder)


def test_our_folder(folder: Path) -> None:
    """Mutations of the description inside the header's metadata, with the rest of the header whole."""
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    length = struct.unpack_from("<Q", raw)[0]
    header = json.loads(raw[8 : 8 + length])
    name = "model.layers.0.self_attn.o_proj.weight"
    end = len(raw) - 8 - length
    parts = {f"{name}#scale": [end, end + 96], f"{name}#field": [end + 96, end + 864]}
    header |= {key: {"dtype": "U8", "shape": [b - a], "data_offsets": [a, b]} for key, (a, b) in parts.items()}
    header["old"] = header.pop(name)
    described = {
        name: {
            "format": "p2",
            "shape": header["old"]["shape"],
            "role": "attn_o",
            "parts": [{"name": key.split("#")[1], "tensor": key, "checksum": "crc32:00000000"} for key in parts],
        },
        "model.norm.weight": {"format": "f32", "shape": header["model.norm.weight"]["shape"], "parts": []},
    }
    inner = json.dumps(described).encode()

    def write(rng: random.Random) -> bytes:
        text = mutated_json(rng, inner).decode("utf-8", "replace")
        metadata = {"edgert.format_version": "1", "edgert.tensors": text}
        changed = json.dumps({"__metadata__": metadata} | header).encode()
        return struct.pack("<Q", len(changed)) + changed + raw[8 + length :] + b"\0" * 864

    run(path, write, folder)
