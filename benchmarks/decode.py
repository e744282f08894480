"""How fast does edgert write, against the memory's bandwidth and against llama.cpp? In turns, medians.

edgert is timed through its public interface (scheduler, sampler and detokenizer included), llama.cpp as a Python
program drives it and through its C interface alone. Share: published bytes of the weights that a token touches, times
the rate, over the read bandwidth of the same run.

    python benchmarks/decode.py --peer-python PEER --models FOLDER --check
    python benchmarks/decode.py zoo-16m-q8_0.gguf --peer-python PEER --asked 1.2 --check
"""

import math
import sys
from typing import Any

from _common import markdown_table, report
from _duel import Case, in_turns, median, opened, parser

KINDS = ("q4_0_m", "q4_k_m", "q2_k_m", "tq2_0_m", "c4:q4_k_m", "p4:q4_k_m", "c2:q2_k_m", "p2:q2_k_m")
CASES = [f"{shape}/{kind}" for shape in ("llama-1b", "llama-8b") for kind in KINDS]
CASES += ["moe-8l/q4_0_m", "moe-8l/q4_k_m"]

RATIO_BARS = dict(zip(KINDS, (1.15, 1.4, 1.6, 2.0, 1.5, 1.5, 2.3, 2.3), strict=True))
MIXTURE_RATIO = 1.7
# A model of this shape also reaches a ratio's bar with this share; some formats must have it anyway.
SHARE_BARS = {"llama-8b": 0.88, "llama-1b": 0.82}
FORMATS_AT_THE_LIMIT = {"c2", "c4", "p2", "p4", "q4_0_m"}


def measure(text: str, arguments: Any) -> dict[str, Any]:
    bandwidths: list[float] = []
    with opened(text, arguments) as (case, ours, theirs):
        about = ours.ask("about")
        ours_rates, their_rates = in_turns(
            arguments.rounds, ours, theirs, "decode", arguments.tokens,
            between=lambda: bandwidths.append(ours.ask("bandwidth")),
        )  # fmt: skip
        bandwidths.append(ours.ask("bandwidth"))
        version = theirs.ask("about") if theirs else None
    rate, bandwidth = median([one["python"] for one in ours_rates]), median(bandwidths)
    python, c = (median([one[name] for one in their_rates]) for name in ("python", "c"))
    result = {
        "case": case.name, "isa": about["isa"], "threads": arguments.threads, "tokens_per_s": rate,
        "rates": [one["python"] for one in ours_rates], "peer_rates": their_rates, "peer": version,
        "token_bytes": about["token_bytes"], "bandwidths": bandwidths, "bandwidth": bandwidth,
        "share": rate * about["token_bytes"] / bandwidth, "peer_python": python, "peer_c": c,
        "ratio_python": rate / python, "ratio_c": rate / c,
    }  # fmt: skip
    return result | {"missed": missed(case, result, arguments.asked)}


def missed(case: Case, result: dict[str, Any], asked: float | None) -> list[str]:
    """The bars that this case does not reach, in words."""
    out = []
    ours = case.kind.partition(":")[0].partition("@")[0]
    share_bar = SHARE_BARS.get(case.shape)
    has_share = share_bar is not None and result["share"] >= share_bar
    if share_bar is not None and ours in FORMATS_AT_THE_LIMIT and not has_share:
        out.append(f"share {result['share']:.2f} < {share_bar}")
    bar = asked or (MIXTURE_RATIO if case.shape == "moe-8l" else RATIO_BARS.get(case.kind))
    if bar is not None and not math.isnan(result["ratio_python"]) and result["ratio_python"] < bar and not has_share:
        out.append(f"ratio {result['ratio_python']:.2f} < {bar}")
    return out


def main() -> None:
    made = parser(__doc__, CASES)
    made.add_argument("--tokens", type=int, default=48, help="decoded tokens of each turn")
    made.add_argument("--asked", type=float, help="least ratio to llama.cpp, in the place of the bars")
    arguments = made.parse_args()
    results = [measure(text, arguments) for text in arguments.cases]
    header = ["case", "tokens/s", "MB/token", "GB/s", "of bandwidth", "share", "llama.cpp", "ratio", "in C", "ratio"]
    rows = []
    for r in results:
        bytes_per_s = r["tokens_per_s"] * r["token_bytes"]
        peer = (f"{r[key]:.2f}" for key in ("peer_python", "ratio_python", "peer_c", "ratio_c"))
        rows.append([
            r["case"], f"{r['tokens_per_s']:.1f}", f"{r['token_bytes'] / 1e6:.0f}", f"{bytes_per_s / 1e9:.1f}",
            f"{r['bandwidth'] / 1e9:.1f}", f"{100 * r['share']:.0f} %", *peer,
        ])  # fmt: skip
    failures = [f"{r['case']}: {what}" for r in results for what in r["missed"]]
    verdict = [f"missed: {'; '.join(failures)}" if failures else "every bar that was measured is reached"]
    report({"results": results}, markdown_table(header, rows) + verdict, as_json=arguments.json)
    sys.exit(arguments.check and bool(failures))


if __name__ == "__main__":
    main()
