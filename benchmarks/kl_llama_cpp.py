"""How far are the logits of edgert and of llama.cpp apart on the same GGUF file? (KL divergence over a text)

For f32: KL(llama.cpp || edgert), mean over the positions. For the other types: KL(reference || each), where the
reference is llama.cpp on a float32 GGUF of the same weights, dequantised by the gguf package. Float32 KV and no flash
attention everywhere. Files come from benchmarks/make_gguf.py, with --dequantised:

    PEER benchmarks/make_gguf.py MODEL FOLDER --dequantised
    python benchmarks/kl_llama_cpp.py --peer-python PEER --folder FOLDER --text TEXT zoo-16m zoo-moe stories260K
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _common import markdown_table, report, run_child
from numpy.typing import NDArray

TYPES = [
    "f32", "f16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q2_k_m", "q3_k_l",
    "q4_k_m", "q5_k_m", "iq4_nl", "iq4_xs", "mxfp4", "tq1_0", "tq2_0",
]  # fmt: skip
F32_LIMIT = 1e-6
RATIO_LIMIT = 1.1


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def mean_kl(reference: NDArray[np.float32], other: NDArray[np.float32]) -> tuple[float, float]:
    """Mean of KL(reference || other) in nats over the rows, and the share of rows with the same first choice."""
    p, q = log_softmax(reference), log_softmax(other)
    same = float((reference.argmax(axis=-1) == other.argmax(axis=-1)).mean())
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean()), same


class Runs:
    """Logits of both programs over the same tokens."""

    def __init__(self, arguments: argparse.Namespace, scratch: Path) -> None:
        self._arguments = arguments
        self._scratch = scratch

    def tokens(self, gguf: Path) -> Path:
        out = self._scratch / "ids.npy"
        run_child(
            self._arguments.peer_python, "_peer.py", "tokens", gguf, self._arguments.text, self._arguments.tokens, out
        )
        return out

    def logits(self, program: str, model: Path, ids: Path) -> NDArray[np.float32]:
        out = self._scratch / "logits.npy"
        python = sys.executable if program == "_ours.py" else self._arguments.peer_python
        run_child(python, program, "logits", model, ids, self._arguments.window, self._arguments.threads, out)
        result: NDArray[np.float32] = np.load(out)
        return result


def compare(runs: Runs, folder: Path, name: str, kind: str) -> dict[str, Any]:
    """One row of the table."""
    model = folder / f"{name}-{kind}.gguf"
    ids = runs.tokens(model)
    ours, theirs = runs.logits("_ours.py", model, ids), runs.logits("_peer.py", model, ids)
    if kind == "f32":
        between, same = mean_kl(theirs, ours)
        return {"model": name, "type": kind, "between": between, "same": same, "holds": between <= F32_LIMIT}
    reference = runs.logits("_peer.py", folder / f"{name}-{kind}-as-f32.gguf", ids)
    (ours_kl, ours_same), (theirs_kl, theirs_same) = mean_kl(reference, ours), mean_kl(reference, theirs)
    return {
        "model": name, "type": kind, "ours": ours_kl, "theirs": theirs_kl, "ours_same": ours_same,
        "theirs_same": theirs_same, "holds": ours_kl <= RATIO_LIMIT * theirs_kl,
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> list[str]:
    cells = []
    for row in rows:
        if row["type"] == "f32":
            numbers = [f"between the two {row['between']:.1e}", "", "", f"{100 * row['same']:.2f} %", ""]
        else:
            ratio = row["ours"] / row["theirs"] if row["theirs"] else float("inf")
            same = [f"{100 * row[key]:.2f} %" for key in ("ours_same", "theirs_same")]
            numbers = [f"{row['ours']:.2e}", f"{row['theirs']:.2e}", f"{ratio:.3f}", *same]
        cells.append([row["model"], row["type"], *numbers, "yes" if row["holds"] else "no"])
    header = ["model", "type", "KL edgert", "KL llama.cpp", "ratio", "top-1 edgert", "top-1 llama.cpp", "holds"]
    return markdown_table(header, cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="names of the files in the folder, without -TYPE.gguf")
    parser.add_argument("--folder", type=Path, required=True, help="folder of the GGUF files")
    parser.add_argument("--text", type=Path, required=True, help="text that is read from its beginning")
    parser.add_argument("--peer-python", required=True, help="Python with llama-cpp-python")
    parser.add_argument("--types", nargs="+", default=TYPES, choices=TYPES)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--window", type=int, default=500)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--skip", nargs="*", default=[f"stories260K-{kind}" for kind in TYPES if "_k" in kind],
                        help="NAME-TYPE whose columns do not fit the type, so that llama.cpp took another")  # fmt: skip
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        runs = Runs(arguments, Path(scratch))
        rows = []
        for name in arguments.models:
            for kind in arguments.types:
                if f"{name}-{kind}" not in arguments.skip:
                    rows.append(compare(runs, arguments.folder, name, kind))
                    print(rows[-1], file=sys.stderr)
    short = [f"{row['model']} {row['type']}" for row in rows if not row["holds"]]
    figure = f"{len(rows) - len(short)} of {len(rows)} hold (f32 <= {F32_LIMIT}, others <= {RATIO_LIMIT} x llama.cpp)"
    lines = [*table(rows), "", figure + (f"; short: {', '.join(short)}" if short else "")]
    report(
        {"rows": rows, "tokens": arguments.tokens, "window": arguments.window, "short": short},
        lines,
        as_json=arguments.json,
    )
    sys.exit(bool(short))


if __name__ == "__main__":
    main()
