"""Are logits and sampled tokens the same bits on every instruction set, thread count, cut of the prompt, and beside
other sequences?

Each MODEL is taken as it is (`float`: the folder's own f16) and converted to each of --formats; GGUF files and folders
of ours are taken as they are. One process for each model, instruction set and thread count prints hashes of
- the logits of a 300-token prompt and the next 64 sampled tokens,
- with the prompt in one span, in spans of 7, and token by token,
- alone, and beside three other sequences.
All must be equal. With --kernels also with each kernel forced that competes at an instruction set (EDGERT_KERNEL), in
one process each, with the last of --threads. An instruction set that this CPU lacks is left out and named. Scalar code
takes a hundred times as long: it runs with the thread counts of --scalar-threads only, and beside others only with the
prompt in one span.

    python benchmarks/same_bits.py zoo-16m zoo-moe --odd tests/models/golden/{llama,gemma2,gemma3,granite}.gguf
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from _common import import_tree, report, run_child

import_tree()
import edgert  # noqa: E402
from edgert import _core  # noqa: E402

PROMPT_TOKENS = 300
SAMPLED_TOKENS = 64
CUTS = (PROMPT_TOKENS, 7, 1)  # tokens of a span
NEIGHBOURS = (5, 40, 111)  # prompt tokens of the other sequences
ISAS = ("scalar", "avx2", "avx512")
FORMATS = ("float", "q4_0", "q4_k", "p4", "p2")


def prompt(vocab_size: int, num_tokens: int, salt: int = 0) -> list[int]:
    """The same tokens for every run of a model."""
    least = min(3, vocab_size - 1)
    return [(37 * i * i + 11 * i + salt) % (vocab_size - least) + least for i in range(num_tokens)]


def digest(*values: Any) -> str:
    hashed = hashlib.sha256()
    for value in values:
        hashed.update(value if isinstance(value, bytes) else repr(value).encode())
    return hashed.hexdigest()[:16]


def hash_case(model: str, threads: int, span_tokens: int, beside: bool) -> str:
    """Logits and tokens of one case, in this process. Each neighbour takes one more token of a step."""
    batch_tokens = span_tokens + (len(NEIGHBOURS) if beside else 0)
    settings = {"temperature": 0.9, "top_p": 0.95, "seed": 11, "ignore_eos": True}
    with edgert.load(model, threads=threads, batch_tokens=batch_tokens, context=512) as llm:
        vocab_size = int(np.asarray(llm.logits([0])).shape[1])
        ids = prompt(vocab_size, PROMPT_TOKENS)
        stop = threading.Event()
        others = [
            threading.Thread(target=run_neighbour, args=(llm, prompt(vocab_size, length, salt=length), stop))
            for length in (NEIGHBOURS if beside else ())
        ]
        for thread in others:
            thread.start()
        logits = np.ascontiguousarray(llm.logits(ids))
        tokens = [chunk.token for chunk in llm.stream(ids, max_tokens=SAMPLED_TOKENS, **settings)]
        stop.set()
        for thread in others:
            thread.join()
    if not np.isfinite(logits).all() or len(tokens) != SAMPLED_TOKENS:
        sys.exit(f"{model}: found non-finite logits, or {len(tokens)} tokens, expected {SAMPLED_TOKENS}")
    return digest(logits.tobytes(), tokens)


def run_neighbour(llm: Any, ids: list[int], stop: threading.Event) -> None:
    """Decodes again and again, so that every step of the case has other rows in it."""
    while not stop.is_set():
        for _ in llm.stream(ids, max_tokens=200, temperature=0.7, seed=3, ignore_eos=True):
            if stop.is_set():
                break


def case_main(model: str, threads: str, isa: str) -> None:
    """The child: every cut and neighbourhood of one model, instruction set and thread count."""
    hashes = {}
    for span_tokens in CUTS:
        for beside in (False, True):
            if beside and isa == "scalar" and span_tokens != PROMPT_TOKENS:
                continue
            case = f"spans of {span_tokens}{', beside three' if beside else ''}"
            hashes[case] = hash_case(model, int(threads), span_tokens, beside)
    print(json.dumps(hashes))


def converted(model: Path, kind: str, scratch: Path) -> Path:
    if kind == "float":
        return model
    out = scratch / f"{model.name}-{kind}"
    subprocess.run([sys.executable, "-m", "edgert", "convert", str(model), str(out), "-q", kind], check=True)
    return out


def check(model: Path, isas: list[str], arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Which cases gave which hash."""
    seen: dict[str, list[str]] = defaultdict(list)

    def run(isa: str, threads: int, kernel: str) -> None:
        forced = {"EDGERT_ISA": isa, "EDGERT_KERNEL": kernel}
        hashes = run_child(sys.executable, "same_bits.py", "--case", model, threads, isa, environment=forced)
        for case, value in hashes.items():
            seen[value].append(f"{isa}, {kernel or 'any'} kernel, {threads} threads, {case}")

    for isa in isas:
        for threads in arguments.scalar_threads if isa == "scalar" else arguments.threads:
            run(isa, threads, "")
        if arguments.kernels and isa != "scalar":
            for kernel in _core.kernel_names(isa):
                run(isa, arguments.threads[-1], kernel)
    return dict(seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, help="Hugging Face folders: as they are, and converted")
    parser.add_argument("--odd", nargs="*", type=Path, default=[], help="folders or files taken as they are")
    parser.add_argument("--formats", nargs="+", default=list(FORMATS))
    parser.add_argument("--isas", nargs="+", default=list(ISAS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2, 3, 4])
    parser.add_argument("--scalar-threads", nargs="+", type=int, default=[2])
    parser.add_argument("--kernels", action="store_true", help="also with each kernel forced")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    supported = {name for name, is_built, is_supported in _core.isa_levels() if is_built and is_supported}
    isas = [isa for isa in arguments.isas if isa in supported]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        todo = [(model, kind) for model in arguments.models for kind in arguments.formats]
        for model, kind in [*todo, *((odd, "float") for odd in arguments.odd)]:
            seen = check(converted(model, kind, Path(scratch)), isas, arguments)
            rows.append({"model": model.name, "format": kind, "results": len(seen), "seen": seen})
            print(
                f"{model.name} {kind}: {len(seen)} result(s) in {sum(map(len, seen.values()))} cases", file=sys.stderr
            )
    short = [row for row in rows if row["results"] != 1]
    cases = sum(len(names) for row in rows for names in row["seen"].values())
    left_out = sorted(set(arguments.isas) - set(isas))
    lines = [
        f"{row['model']} {row['format']}: {value} {names[:3]}" for row in short for value, names in row["seen"].items()
    ]
    lines.append(
        f"{len(rows) - len(short)} of {len(rows)} models have one result over {cases} cases: {' '.join(isas)}"
        f"{f' (not on this machine: {left_out})' if left_out else ''}, threads {arguments.threads} "
        f"(scalar {arguments.scalar_threads}), spans of {CUTS}, "
        f"alone and beside three{', each kernel forced' if arguments.kernels else ''}"
    )
    result = {"rows": rows, "isas": isas, "left_out": left_out, "threads": arguments.threads}
    report(result, lines, as_json=arguments.json)
    sys.exit(bool(short) or not rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        case_main(*sys.argv[2:])
    else:
        main()
