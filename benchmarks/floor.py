"""How fast may a model decode at most, by the bytes of its weights? The prediction that decode.py is held against.

python benchmarks/floor.py --bandwidth 35.8               GB/s as `edgert doctor` measures them
"""

import argparse
from typing import Any

from _common import import_tree, markdown_table, report
from _shapes import SHAPES, tensor_format, tensors

import_tree()
from edgert import _core  # noqa: E402
from edgert.quant import format as formats  # noqa: E402

KINDS = ["c2", "c4", "p2", "p4", "p8", "q4_0", "q4_0_m", "q4_k_m", "q2_k_m", "tq2_0_m", "q8_0"]
# What whole models reach of it: small ones spend more of a step outside their matrices.
SHARES = {"llama-8b": 0.88}
DEFAULT_SHARE = 0.82


def touched(shape: str, kind: str) -> tuple[int, float]:
    """Weights that a token is multiplied with, and their bytes by the published bits of their formats."""
    config: dict[str, Any] = SHAPES[shape]
    weights, num_bytes = 0, 0.0
    for tensor in tensors(config):
        is_looked_up = tensor.role == "embedding" and not config["tie_word_embeddings"]
        if not tensor.cols or is_looked_up:
            continue
        count = tensor.rows * tensor.cols * (config["num_experts_per_tok"] if tensor.experts else 1)
        matrix_format = "f16" if tensor.role == "router" else tensor_format(kind, tensor, config)
        weights += count
        num_bytes += count * formats.get(matrix_format).spec.published_bits / 8
    return weights, num_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bandwidth", type=float, help="GB/s (default: measured now with --threads)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--shapes", nargs="+", default=["llama-1b", "llama-8b", "qwen3-0.6b", "moe-8l"], choices=SHAPES)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    bandwidth = arguments.bandwidth or _core.read_bandwidth(arguments.threads) / 1e9
    known = {*formats.names(), "q4_0_m", "q4_k_m", "q2_k_m"} | ({"tq2_0_m"} if "tq2_0" in formats.names() else set())
    results = []
    for shape in arguments.shapes:
        share = SHARES.get(shape, DEFAULT_SHARE)
        for kind in filter(known.__contains__, KINDS):
            weights, num_bytes = touched(shape, kind)
            most = bandwidth * 1e9 / num_bytes
            results.append({
                "case": f"{shape}/{kind}", "weights": weights, "bytes": num_bytes, "floor_ms": 1e3 / most,
                "most_tokens_per_s": most, "share": share, "predicted_tokens_per_s": share * most,
            })  # fmt: skip
    rows = [
        [
            r["case"], f"{r['weights'] / 1e6:.0f} M", f"{r['bytes'] / 1e6:.0f} MB", f"{r['floor_ms']:.1f} ms",
            f"{r['most_tokens_per_s']:.1f}", f"{r['predicted_tokens_per_s']:.1f} ({100 * r['share']:.0f} %)",
        ]
        for r in results
    ]  # fmt: skip
    header = ["case", "weights a token", "bytes", "floor", "most tokens/s", "predicted"]
    lines = [*markdown_table(header, rows), f"at {bandwidth:.1f} GB/s"]
    report({"bandwidth_gb_per_s": bandwidth, "results": results}, lines, as_json=arguments.json)


if __name__ == "__main__":
    main()
