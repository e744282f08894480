"""Makes the bundled default model from the folder of zoo-3m: python tools/make_bundled_model.py SOURCE [DESTINATION].

Run it from the root of the repository after `make dev`; it replaces edgert/assets/default.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from edgert.convert import convert
from edgert.convert.checksums import folder_checksums
from edgert.files.checksums import CHECKSUMS

QUANT = "p8"  # 3.6 MB: the finest format that stays under the limit
MAX_BYTES = 5_000_000
README = """# The bundled model

A Llama-architecture chat model of 3.4 M parameters (hidden size 256, 3 layers, vocabulary 4096), trained for this
project and under the licence of this repository (MIT). It answers greetings, tells short stories, knows a few sums,
capitals and opposites, and is wrong about nearly everything else: it is here so that `edgert run` works at once.

Made by `tools/make_bundled_model.py` with `edgert convert` in the format {quant}.
"""


def make(source: Path, destination: Path) -> int:
    """Converts `source` into `destination`; returns the bytes of the folder. Raises SystemExit if it is too large."""
    fresh = destination.with_name(destination.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    convert(source, fresh, quant=QUANT)
    # Greedy by default: the likeliest answer is the right one more often, and the same at every run.
    generation = json.loads((fresh / "generation_config.json").read_text())
    generation = {k: v for k, v in generation.items() if k not in ("temperature", "top_p")} | {"do_sample": False}
    (fresh / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    (fresh / CHECKSUMS).write_text(folder_checksums(fresh))
    # Not in the checksums: `edgert pull` does not fetch it.
    (fresh / "README.md").write_text(README.format(quant=QUANT))
    num_bytes = sum(file.stat().st_size for file in fresh.iterdir())
    if num_bytes > MAX_BYTES:
        shutil.rmtree(fresh)
        raise SystemExit(f"{source}: the bundled model takes {num_bytes:,} bytes, expected at most {MAX_BYTES:,}")
    shutil.rmtree(destination, ignore_errors=True)
    fresh.rename(destination)
    return num_bytes


def main(arguments: list[str]) -> int:
    if not 1 <= len(arguments) <= 2:
        print(__doc__, file=sys.stderr)
        return 2
    root = Path(__file__).resolve().parents[1]
    destination = Path(arguments[1]) if len(arguments) == 2 else root / "edgert/assets/default"
    destination.parent.mkdir(parents=True, exist_ok=True)
    print(f"{destination}: {make(Path(arguments[0]), destination):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
