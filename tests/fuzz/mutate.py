"""Mutates valid models and opens them in child processes: each must run or be refused by an EdgertError, never end by
a signal, hang, or raise something else. A model that fails is kept, with the command that repeats it.

    python tests/fuzz/mutate.py --seconds 600 --seed 1 [--module FOLDER_OF_A_SANITISED_CORE]
"""

import argparse
import copy
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from seed_models import safetensors_bytes, write_seeds

ROOT = Path(__file__).resolve().parents[2]
BATCH = 8
TIMEOUT_S = 120
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
            container[key] = rng.choice(ODD_VALUES)
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
    weights = ["model.safetensors"] * 4 + ["config.json"] * 3
    path = out / rng.choice([*names, *weights])
    content = path.read_bytes()
    if rng.random() < 0.3:
        path.write_bytes(mutate_bytes(content, rng))
    elif path.suffix == ".safetensors":
        path.write_bytes(mutate_safetensors(content, rng))
    elif path.suffix == ".json":
        path.write_text(json.dumps(mutate_json(json.loads(content), rng)), encoding="utf-8")


def library_path(name: str) -> str:
    """Where the compiler has a library of its own."""
    command = [os.environ.get("CXX", "g++"), f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


class Opener:
    """Runs the children; counts what they say."""

    def __init__(self, module: Path | None) -> None:
        self.ran = self.refused = 0
        self._command = [sys.executable, str(Path(__file__).with_name("open_models.py"))]
        self._environment = dict(os.environ)
        if module is not None:
            (core,) = module.glob("_core*.so")
            self._command += ["--core", str(core)]
            # libstdc++ too: the sanitizer looks for the functions that throw when the process begins.
            preload = " ".join(library_path(name) for name in ("libasan.so", "libstdc++.so.6"))
            self._environment |= {
                "LD_PRELOAD": preload, "PYTHONPATH": str(ROOT), "PYTHONMALLOC": "malloc",
                "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:hard_rss_limit_mb=3000",
                "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
            }  # fmt: skip

    def fault(self, models: list[Path]) -> str:
        """Opens the models in one child. Empty if all is well, else what happened."""
        command = [*self._command, *map(str, models)]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=self._environment)
        except subprocess.TimeoutExpired:
            return f"no answer within {TIMEOUT_S} s"
        answers = run.stdout.splitlines()
        if run.returncode == 0 and len(answers) == len(models):
            self.ran += sum(answer == "ran" for answer in answers)
            self.refused += sum(answer.startswith("refused ") for answer in answers)
            return ""
        return f"exit code {run.returncode}: {' | '.join(run.stderr.strip().splitlines()[-3:])[:400]}"


def fuzz(arguments: argparse.Namespace, scratch: Path) -> list[str]:
    """The faults found until the time or the count is over."""
    opener = Opener(arguments.module)
    seeds = write_seeds(scratch, arguments.seed)
    faults = [f"seed {kind}: {fault}" for kind, path in seeds.items() if (fault := opener.fault([path]))]
    if faults or opener.ran != len(seeds):
        return faults or [f"found {opener.refused} refused seed models, expected none"]
    begin, done = time.monotonic(), 0
    while done < arguments.count and time.monotonic() - begin < arguments.seconds:
        batch = []
        for index in range(done, min(done + BATCH, arguments.count)):
            rng = random.Random(f"{arguments.seed}.{index}")
            kind = rng.choice([*seeds, "gguf"])
            out = scratch / f"{index}-{kind}"
            mutate_model(seeds[kind], out, rng)
            batch.append(out)
        if opener.fault(batch):
            for model in batch:
                if fault := opener.fault([model]):
                    kept = arguments.keep / f"{arguments.seed}-{model.name}"
                    arguments.keep.mkdir(parents=True, exist_ok=True)
                    (shutil.copytree if model.is_dir() else shutil.copyfile)(model, kept)
                    faults.append(f"{kept}: {fault}")
        for model in batch:
            shutil.rmtree(model) if model.is_dir() else model.unlink()
        done += len(batch)
    build = "sanitised core" if arguments.module else "release core"
    print(f"{done} mutations, seed {arguments.seed}, {build}: {opener.ran - len(seeds)} ran, {opener.refused} refused")
    return faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--count", type=int, default=1_000_000, help="most mutations")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--module", type=Path, help="folder of a _core built with -fsanitize=address,undefined")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "edgert-fuzz", help="for what fails")
    arguments = parser.parse_args()
    if any((ROOT / "edgert").glob("_core*.so")):
        os.environ["PYTHONPATH"] = str(ROOT)  # built in the tree: take that one, else the installed one
    with tempfile.TemporaryDirectory() as scratch:
        faults = fuzz(arguments, Path(scratch))
    print("\n".join(faults))
    print(f"{len(faults)} faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
