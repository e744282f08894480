"""How much memory does a loaded model add to `import edgert`, against its file, its KV cache and its activations?

A process that does nothing else fills the context; Linux.

    python benchmarks/memory.py --check                     a synthesised llama-1b in p4
    python benchmarks/memory.py --model MODEL --context 512
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import synth
from _common import import_tree, report, run_child
from _shapes import SHAPES

import_tree()
import edgert  # noqa: E402

ASKED = 1.05
PROMPT_TOKENS = 16


def resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status: found no VmRSS")


def measure(model: str, threads: int, context: int) -> dict[str, Any]:
    """In a process of its own."""
    before = resident_bytes()
    with edgert.load(model, threads=threads, context=context) as llm:
        ids = list(range(100, 100 + PROMPT_TOKENS))
        stream = llm.stream(ids, max_tokens=context - len(ids), temperature=0, ignore_eos=True)
        kv_bytes = max(llm.kv_bytes for _ in stream)
        activation_bytes = llm._engine._runtime.activation_bytes
        resident = resident_bytes() - before
        allowed = llm.weight_bytes + kv_bytes + activation_bytes
        return {
            "resident_over_import_bytes": resident, "import_bytes": before, "weight_bytes": llm.weight_bytes,
            "kv_bytes": kv_bytes, "activation_bytes": activation_bytes, "ratio": resident / allowed,
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="default: synthesised for this run")
    parser.add_argument("--shape", default="llama-1b", choices=SHAPES)
    parser.add_argument("--format", default="p4", choices=synth.KINDS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--check", action="store_true", help=f"exit code 1 beyond {ASKED}")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model = arguments.model
        if model is None:
            model = Path(scratch) / arguments.shape
            synth.write(arguments.shape, model, arguments.format)
        result = run_child(sys.executable, "memory.py", "--child", model, arguments.threads, arguments.context)
    parts = " + ".join(
        f"{name} {result[f'{key}_bytes'] / 1e6:.0f} MB"
        for name, key in (("weights", "weight"), ("KV", "kv"), ("activations", "activation"))
    )
    line = f"over import {result['resident_over_import_bytes'] / 1e6:.0f} MB = {result['ratio']:.3f} x ({parts})"
    report(result, [f"{line} (asked {ASKED})"], as_json=arguments.json)
    sys.exit(arguments.check and result["ratio"] > ASKED)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        import json

        print(json.dumps(measure(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
    else:
        main()
