"""What would real routing be worth to a large mixture? That of a small trained model, imposed on a large one's shape.

    python benchmarks/expert_imposed.py zoo-moe --text wiki.test.raw --disk 1500 --layer-ms 0.9

Random weights route uniformly, the worst case for a cache. Here each expert of the trained model stands for as many
neighbours as make up the large layer, and its layers repeat; the simulator says what the default cache makes of both
(benchmarks/expert_time.py holds it against the runtime). --disk and --layer-ms: as budget.py measures them.
"""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from _common import import_tree, markdown_table, report
from numpy.typing import NDArray

import_tree()
from edgert import _core, load  # noqa: E402
from edgert.cli.moe import record  # noqa: E402
from edgert.offload.expert_trace import ExpertTrace  # noqa: E402
from edgert.offload.simulate import Device, fills, prefetch_bytes, simulate  # noqa: E402

BUDGETS = (0.25, 0.5)
# qwen3-30b-a3b cut to 8 layers, as benchmarks/_shapes.py has it, in q4_0: 4.5 bits a weight.
LAYERS, EXPERTS, TOP_K, HIDDEN, INTERMEDIATE = 8, 128, 8, 2048, 768
EXPERT_BYTES = 3 * HIDDEN * INTERMEDIATE * 9 // 16


def imposed(trace: ExpertTrace) -> ExpertTrace:
    """The trace with each expert as a block of neighbours, without the logits of gates."""
    num_experts = trace.expert_bytes.shape[1]
    share = EXPERTS // num_experts
    assert share * num_experts == EXPERTS and share * trace.top_k == TOP_K, "expected a model of 32 experts, 2 a token"
    layers = np.arange(LAYERS) % trace.num_layers
    experts = share * trace.experts[:, layers, :, None] + np.arange(share, dtype=np.int16)
    return replace(
        trace,
        experts=np.ascontiguousarray(experts.reshape(len(experts), LAYERS, TOP_K).astype(np.int16)),
        weights=np.ascontiguousarray(np.repeat(trace.weights[:, layers], share, axis=2)),
        gate_logits=None,
        expert_bytes=np.full((LAYERS, EXPERTS), EXPERT_BYTES, np.int64),
    )


def uniform(trace: ExpertTrace, rng: np.random.Generator) -> ExpertTrace:
    """As many tokens, every choice as likely as any other."""
    ranks: NDArray[np.float64] = rng.random((trace.num_tokens, LAYERS, EXPERTS))
    experts = np.sort(np.argpartition(ranks, TOP_K, axis=2)[:, :, :TOP_K], axis=2).astype(np.int16)
    return replace(trace, experts=np.ascontiguousarray(experts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--max-tokens", type=int, default=8192)
    parser.add_argument("--disk", type=float, required=True, help="MB/s")
    parser.add_argument("--layer-ms", type=float, required=True, help="of a layer with all experts in memory")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with load(arguments.model) as llm:
        trace = imposed(record(llm, arguments.text.read_text(encoding="utf-8"), arguments.max_tokens))
    device = Device(disk_bytes_per_s=arguments.disk * 1e6, layer_s=arguments.layer_ms / 1e3)
    traces = {"uniform": uniform(trace, np.random.default_rng(arguments.seed)), "imposed": trace}
    rows = []
    for share in BUDGETS:
        for name, one in traces.items():
            run = simulate(
                one, policy=_core.DEFAULT_POLICY, predictor=_core.DEFAULT_PREDICTOR,
                num_fills=fills(one, int(one.total_bytes * share)),
                device=device,
                capacity_bytes=int(one.total_bytes * share),
                options={"over_fetch": 2 * TOP_K, "prefetch_bytes": prefetch_bytes(one, device)},
            )  # fmt: skip
            rows.append(
                {"budget": share, "routing": name, "tokens_per_s": run.num_tokens / run.elapsed_s} | asdict(run)
            )
    table = markdown_table(
        ["cache", "routing", "hits", "MB read/token", "waiting", "tokens/s"],
        [
            [
                f"{row['budget']:.0%}", row["routing"], f"{row['hit_rate']:.1%}",
                f"{row['read_bytes'] / row['num_tokens'] / 1e6:.0f}", f"{row['stall_s'] / row['elapsed_s']:.0%}",
                f"{row['tokens_per_s']:.1f}",
            ]
            for row in rows
        ],
    )  # fmt: skip
    report({"rows": json.loads(json.dumps(rows))}, table, as_json=arguments.json)


if __name__ == "__main__":
    main()
