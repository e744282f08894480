"""Random changes of valid models: bytes, JSON values, safetensors headers."""

import copy
import json
import random
import shutil
import struct
from pathlib import Path
from typing import Any

from fuzz.seed_models import safetensors_bytes

NUMBERS = [0, 1, 2, -1, 3, 7, 31, 63, 127, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63, 2**64 - 1, -(2**63)]
ODD_VALUES: list[Any] = [
    *NUMBERS,
    0.5,
    -0.0,
    1e-300,
    1e300,
    True,
    None,
    "",
    "x" * 70000,
    "../../etc/passwd",
    [],
    {},
    [[]],
]


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    """Cut, overwritten, lengthened; most often near the beginning, where the headers lie."""
    data = bytearray(content)
    head = min(len(data), 30000)
    choice = rng.random()
    if choice < 0.15:
        return bytes(data[: rng.randrange(len(data))])
    if choice < 0.55:
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(head)] = rng.randrange(256)
    elif choice < 0.8 and head > 16:
        offset = rng.randrange(4, head - 8)
        data[offset : offset + 8] = struct.pack("<Q", rng.choice([*NUMBERS, rng.getrandbits(64)]) & (2**64 - 1))
    elif choice < 0.9:
        offset = rng.randrange(head)
        data[offset:offset] = rng.randbytes(rng.randint(1, 64))
    else:
        begin, length = rng.randrange(head), rng.randint(1, 64)
        del data[begin : begin + length]
    return bytes(data)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a JSON value, outermost first."""
    found: list[tuple[Any, Any]] = []
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys)[:200]:
        found.append((value, key))
        found += _places(value[key])
    return found


def mutate_json(value: Any, rng: random.Random) -> Any:
    """One to three values replaced, removed, doubled or exchanged."""
    value = copy.deepcopy(value)
    for _ in range(rng.randint(1, 3)):
        places = _places(value)
        if not places:
            break
        container, key = rng.choice(places)
        choice = rng.random()
        if choice < 0.65:
            # A copy: a list that is put in may be mutated in its turn.
            container[key] = copy.deepcopy(rng.choice(ODD_VALUES))
        elif choice < 0.8:
            del container[key]
        elif isinstance(container[key], (int, float)) and not isinstance(container[key], bool):
            container[key] = rng.choice([container[key] + 1, container[key] - 1, container[key] * 2, -container[key]])
        else:
            other, other_key = rng.choice(places)
            container[key] = copy.deepcopy(other[other_key])
    return value


def mutate_safetensors(content: bytes, rng: random.Random) -> bytes:
    """The header as JSON (and the JSON inside its metadata) mutated, the data kept."""
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    inner = header.get("__metadata__", {}).get("edgert.tensors")
    if inner is not None and rng.random() < 0.5:
        header["__metadata__"]["edgert.tensors"] = json.dumps(mutate_json(json.loads(inner), rng))
    else:
        header = mutate_json(header, rng)
    return safetensors_bytes(header, data)


def mutate_model(source: Path, out: Path, rng: random.Random) -> None:
    """A copy of the model `source`, a file or a folder, with one of its files mutated."""
    if source.is_file():
        out.write_bytes(mutate_bytes(source.read_bytes(), rng))
        return
    shutil.copytree(source, out)
    names = sorted(path.name for path in out.iterdir())
    favoured = [name for name in names if name == "config.json" or name.endswith(".safetensors")]
    path = out / rng.choice(names + 3 * favoured)
    content = path.read_bytes()
    if path.suffix not in (".json", ".safetensors") or rng.random() < 0.3:
        path.write_bytes(mutate_bytes(content, rng))
    elif path.suffix == ".safetensors":
        path.write_bytes(mutate_safetensors(content, rng))
    else:
        path.write_text(json.dumps(mutate_json(json.loads(content), rng)), encoding="utf-8")


def seed_models(seeds: Path) -> list[Path]:
    """The valid models in a folder, always in the same order."""
    return sorted(seeds.iterdir())


def main_file(model: Path) -> Path:
    """What a user would open: the first file of a split GGUF model, else the model itself."""
    pieces = sorted(model.glob("*-of-*.gguf")) if model.is_dir() else []
    return pieces[0] if pieces else model


def mutation(seeds: Path, scratch: Path, seed: int, number: int) -> Path:
    """Writes mutation `number` of `seed` into `scratch`; the same numbers give the same files."""
    rng = random.Random(f"{seed}.{number}")
    source = rng.choice(seed_models(seeds))
    out = scratch / f"{seed}-{number}-{source.name}"
    mutate_model(source, out, rng)
    return out
