"""Resident bytes that a loaded model adds to `import edgert`, in a process that does nothing else.

    _memory.py MODEL THREADS CONTEXT
The last line of output is JSON. Linux.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if any((ROOT / "edgert").glob("_core*.so")):
    sys.path.insert(0, str(ROOT))
import edgert  # noqa: E402


def resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status: found no VmRSS")


def main(model: str, threads: str, context: str) -> None:
    before = resident_bytes()
    with edgert.load(model, threads=int(threads), context=int(context)) as llm:
        opened = llm._opened
        ids = list(range(100, 116))
        kv_bytes = 0
        for _ in llm.stream(ids, max_tokens=int(context) - len(ids), temperature=0, ignore_eos=True):
            kv_bytes = max(kv_bytes, llm.kv_bytes)
        after = resident_bytes()
        found = {
            "resident_over_import_bytes": after - before,
            "import_bytes": before,
            "file_bytes": opened.model.num_bytes,
            "kv_bytes": kv_bytes,
            "activation_bytes": opened.activation_bytes,
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
