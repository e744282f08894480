"""Resident bytes that a loaded model adds to `import edgert`, in a process that does nothing else.

    _memory.py MODEL THREADS CONTEXT
The last line of output is JSON. Linux.
"""

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
        ids = list(range(100, 116))
        for _ in llm.stream(ids, max_tokens=int(context) - len(ids), temperature=0, ignore_eos=True):
            pass
        after = resident_bytes()
    print(f'{{"resident_over_import_bytes": {after - before}, "import_bytes": {before}}}')


if __name__ == "__main__":
    main(*sys.argv[1:])
