"""How fast is each kernel from memory? Products of one matrix shape over 1.5 GB of distinct weights.

Rates count the published bits of the weights. Each measurement of a kernel stands between two of the read bandwidth
with the same threads; share is the rate over their median. Where a format has several kernels for a number of tokens,
the fastest counts for the bars, and a line is shown for each.

    python benchmarks/kernels.py                                 p4 and q4_k, one token, 1 and 2 threads
    python benchmarks/kernels.py --formats all --check           bars 1 (one token) and 4 (512 tokens: --tokens 512)
    python benchmarks/kernels.py --isa avx2 --formats all --check
"""

import argparse
import itertools
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from _common import import_tree, markdown_table, report

import_tree()
from edgert import _core  # noqa: E402
from edgert.device.isa import select_isa  # noqa: E402
from edgert.quant import format as formats  # noqa: E402

SHAPES = {"4096x4096": (4096, 4096), "14336x4096": (14336, 4096)}
BANDWIDTH_BYTES = 1 << 30
FLOATS = {"f32", "f16", "bf16"}
AT_THE_LIMIT = {"p2", "p3", "p4", "p5", "p6", "p7", "p8", "c2", "c3", "c4", "q8_0", "q4_0"}


def gemv_bar(isa: str, name: str, bits: float) -> float | None:
    """Least share of the read bandwidth for one token; None where there is no bar."""
    if name in FLOATS or isa not in ("avx2", "avx512vnni", "amx"):
        return None
    if isa == "avx2":
        if name in ("p2", "q8_0", "q4_0"):
            return 0.90
        return 0.85 if name in ("p4", "p8") else 0.75 if bits >= 2 else None
    if name in AT_THE_LIMIT:
        return 0.95
    if name in ("q4_k", "q6_k"):
        return 0.92
    return 0.88 if bits >= 2 else 0.80


def gemm_bar(isa: str, name: str) -> float | None:
    """Least 10^9 multiply-adds a second for 512 tokens and two threads."""
    if isa == "amx":
        return 1450 if name == "p4" else 700 if name.endswith("_k") else None
    return 350 if isa == "avx512vnni" and name == "p4" else None


def measure(isa: str, name: str, shape: str, tokens: int, threads: int, arguments: Any) -> list[dict[str, Any]]:
    """One entry for each kernel of the format, the fastest first."""
    rows, cols = SHAPES[shape]
    bits = formats.get(name).spec.published_bits
    seconds: dict[str, list[float]] = {}
    # Many tokens are limited by arithmetic: fewer weights, still beyond the caches of a core.
    num_bytes = arguments.weight_bytes if tokens <= 16 else arguments.weight_bytes // 16
    bandwidths = [_core.read_bandwidth(threads, BANDWIDTH_BYTES, 3)]
    for _ in range(arguments.rounds):
        measured = _core.time_kernels(isa, name, rows, cols, tokens, threads, num_bytes, arguments.passes)
        for kernel, times in measured.items():
            seconds.setdefault(kernel, []).extend(times)
        bandwidths.append(_core.read_bandwidth(threads, BANDWIDTH_BYTES, 3))
    bandwidth = statistics.median(bandwidths)
    out = []
    for kernel, times in sorted(seconds.items(), key=lambda item: statistics.median(item[1])):
        second = statistics.median(times)
        rate = rows * cols * bits / 8 / second
        out.append({
            "format": name, "bits": bits, "kernel": kernel, "isa": isa, "shape": shape, "tokens": tokens,
            "threads": threads, "us": 1e6 * second, "gb_per_s": rate / 1e9,
            "g_weights_per_s": rows * cols / second / 1e9, "gmac_per_s": rows * cols * tokens / second / 1e9,
            "bandwidth_gb_per_s": bandwidth / 1e9, "share": rate / bandwidth,
        })  # fmt: skip
    return out


def missed(fastest: dict[str, Any]) -> str | None:
    """The bar that the fastest kernel of a format does not reach, in words."""
    if fastest["tokens"] == 1:
        bar = gemv_bar(fastest["isa"], fastest["format"], fastest["bits"])
        if bar is not None and fastest["share"] < bar:
            return f"share {fastest['share']:.2f} < {bar}"
    if fastest["tokens"] == 512 and fastest["shape"] == "4096x4096" and fastest["threads"] == 2:
        rate_bar = gemm_bar(fastest["isa"], fastest["format"])
        if rate_bar is not None and fastest["gmac_per_s"] < rate_bar:
            return f"{fastest['gmac_per_s']:.0f} GMAC/s < {rate_bar:.0f}"
    return None


def format_names(asked: Sequence[str]) -> list[str]:
    known = list(_core.format_names())
    if list(asked) == ["all"]:
        return [name for name in known if name not in FLOATS]
    for name in asked:
        if name not in known:
            sys.exit(f"--formats: found {name!r}, expected all or some of {', '.join(known)}")
    return list(asked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", nargs="+", default=["p4", "q4_k"])
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--tokens", nargs="+", type=int, default=[1])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--isa", nargs="+", help="levels; default: the best, or what EDGERT_ISA names")
    parser.add_argument("--weight-bytes", type=int, default=1_500_000_000, help="of the weights that are cycled")
    parser.add_argument("--passes", type=int, default=3, help="over the weights in each round")
    parser.add_argument("--rounds", type=int, default=3, help="turns of kernel and bandwidth")
    parser.add_argument("--check", action="store_true", help="exit code 1 where a bar is missed")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results, failures = [], []
    for isa, name, shape, tokens, threads in itertools.product(
        arguments.isa or [select_isa()], format_names(arguments.formats), arguments.shapes, arguments.tokens,
        arguments.threads,
    ):  # fmt: skip
        measured = measure(isa, name, shape, tokens, threads, arguments)
        results += measured
        if what := missed(measured[0]):
            failures.append(f"{name} {shape} {tokens} tokens {threads} threads {isa}: {what}")
    header = ["format", "bits", "kernel", "ISA", "shape", "tokens", "threads", "us", "GB/s", "G weights/s", "GMAC/s",
              "of GB/s", "share"]  # fmt: skip
    rows = [
        [
            r["format"], f"{r['bits']:.2f}", r["kernel"], r["isa"], r["shape"], f"{r['tokens']}", f"{r['threads']}",
            f"{r['us']:.0f}", f"{r['gb_per_s']:.1f}", f"{r['g_weights_per_s']:.1f}", f"{r['gmac_per_s']:.0f}",
            f"{r['bandwidth_gb_per_s']:.1f}", f"{100 * r['share']:.0f} %",
        ]
        for r in results
    ]  # fmt: skip
    verdict = [f"missed: {what}" for what in failures] or ["every bar that was measured is reached"]
    report({"results": results, "missed": failures}, markdown_table(header, rows) + verdict, as_json=arguments.json)
    sys.exit(arguments.check and bool(failures))


if __name__ == "__main__":
    main()
