"""Are the experts in memory when the router asks? Hit rate, bytes and waiting of the default cache against its bars.

python benchmarks/expert_cache.py MODEL --text wiki.test.raw     a mixture-of-experts folder of safetensors

The second half of the text's routing is simulated, what is fitted is fitted on the first. Recall of each predictor,
layer by layer, also for random weights of the same shapes: what is predicted there has nothing to do with training.
"""

import argparse
import json
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from _common import import_tree, markdown_table, report
from safetensors.numpy import load_file, save_file

import_tree()
from edgert import _core, load  # noqa: E402
from edgert.cli.moe import record  # noqa: E402
from edgert.offload.expert_trace import ExpertTrace  # noqa: E402
from edgert.offload.simulate import Device, SimulatedRun, halves, simulate  # noqa: E402

BUDGETS = (0.25, 0.5)
# Of the time that a layer computes: how long reading one expert takes. The bars are for 1.
READ_TIMES = (0.25, 0.5, 1.0, 1.5, 2.0)
LAYER_S = 1e-3
HITS_OF_BELADY, BYTES_OF_LRU, WAITING_OF_LRU = 0.92, 1.3, 0.5


def randomised(model: Path, folder: Path) -> Path:
    """The model with every matrix drawn anew, as wide as it was."""
    rng = np.random.default_rng(1)
    folder.mkdir()
    for path in model.iterdir():
        if path.suffix == ".safetensors":
            weights = {
                name: w if w.ndim == 1 else (w.astype(np.float32).std() * rng.standard_normal(w.shape)).astype(w.dtype)
                for name, w in load_file(path).items()
            }
            save_file(weights, str(folder / path.name))
        elif path.is_file():
            shutil.copy(path, folder / path.name)
    return folder


def routing(model: Path, text: str, max_tokens: int) -> ExpertTrace:
    with load(model) as llm:
        return record(llm, text, max_tokens)


def run(trace: ExpertTrace, policy: str, predictor: str, share: float, read_time: float) -> SimulatedRun:
    fit, test = halves(trace)
    device = Device(disk_bytes_per_s=float(trace.expert_bytes.mean()) / (read_time * LAYER_S), layer_s=LAYER_S)
    capacity = int(trace.total_bytes * share)
    return simulate(test, policy=policy, predictor=predictor, capacity_bytes=capacity, device=device, profile=fit)


def compared(trace: ExpertTrace, share: float, read_time: float) -> dict[str, Any]:
    """The default pair against LRU and Belady without prediction."""
    lru, belady = (run(trace, policy, "none", share, read_time) for policy in ("lru", "belady"))
    default = run(trace, _core.DEFAULT_POLICY, _core.DEFAULT_PREDICTOR, share, read_time)
    return {
        "budget": share,
        "read_time": read_time,
        "hit_rate": default.hit_rate,
        "late_rate": default.late_rate,
        "belady_hit_rate": belady.hit_rate,
        "hits_of_belady": default.hit_rate / belady.hit_rate,
        "bytes_of_lru": default.read_bytes / lru.read_bytes,
        "waiting_of_lru": default.stall_s / lru.stall_s,
        "run": asdict(default),
    }


def recalls(trace: ExpertTrace) -> dict[str, list[float]]:
    names = [name for name in _core.predictor_names() if name not in ("none", "lookahead")]
    return {name: list(run(trace, "lfu", name, 0.5, 1.0).recall) for name in names}


def recall_table(found: dict[str, list[float]]) -> list[str]:
    layers = len(next(iter(found.values())))
    rows = [[name, *(f"{100 * share:.0f} %" for share in shares)] for name, shares in found.items()]
    return markdown_table(["predictor", *(f"layer {i}" for i in range(layers))], rows)


def is_met(row: dict[str, Any]) -> bool:
    return bool(
        row["hits_of_belady"] >= HITS_OF_BELADY
        and row["bytes_of_lru"] <= BYTES_OF_LRU
        and row["waiting_of_lru"] <= WAITING_OF_LRU
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--max-tokens", type=int, default=65536)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    text = arguments.text.read_text(encoding="utf-8")
    trace = routing(arguments.model, text, arguments.max_tokens)
    with tempfile.TemporaryDirectory() as place:
        random_trace = routing(randomised(arguments.model, Path(place) / "random"), text, arguments.max_tokens)
    rows = [compared(trace, share, read_time) for share in BUDGETS for read_time in READ_TIMES]
    trained, random = recalls(trace), recalls(random_trace)
    met = all(is_met(row) for row in rows if row["read_time"] == 1.0)
    table = markdown_table(
        ["budget", "read / layer", "hits", "late", "Belady's hits", "hits / Belady", "bytes / LRU", "waiting / LRU"],
        [
            [
                f"{100 * row['budget']:.0f} %", f"{row['read_time']:g}", f"{100 * row['hit_rate']:.1f} %",
                f"{100 * row['late_rate']:.1f} %", f"{100 * row['belady_hit_rate']:.1f} %",
                f"{row['hits_of_belady']:.2f}", f"{row['bytes_of_lru']:.2f}", f"{row['waiting_of_lru']:.2f}",
            ]
            for row in rows
        ],
    )  # fmt: skip
    lines = [
        *table, "", "Recall, trained weights:", "", *recall_table(trained), "", "Recall, random weights:", "",
        *recall_table(random), "",
        f"where a read takes as long as a layer: hits / Belady >= {HITS_OF_BELADY}, bytes / LRU <= {BYTES_OF_LRU}, "
        f"waiting / LRU <= {WAITING_OF_LRU}: {'met' if met else 'NOT MET'}",
    ]  # fmt: skip
    result = {"rows": rows, "recall": trained, "recall_random": random, "is_met": met}
    report(json.loads(json.dumps(result)), lines, as_json=arguments.json)


if __name__ == "__main__":
    main()
