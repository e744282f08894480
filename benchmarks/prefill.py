"""How fast does edgert read a prompt, against llama.cpp? In turns, medians.

python benchmarks/prefill.py --peer-python PEER --models FOLDER --check
"""

import math
import sys
from typing import Any

from _common import markdown_table, report
from _duel import in_turns, median, opened, parser

RATIO_BARS = {"p4:q4_k_m": 4.0, "p2:q2_k_m": 4.0, "tq2_0_m": 4.0, "q4_0_m": 2.5, "q4_k_m": 2.0, "q2_k_m": 2.0}
MIXTURE_RATIO = 2.5
CASES = [f"{shape}/{kind}" for shape in ("llama-1b", "llama-8b") for kind in RATIO_BARS]
CASES += ["moe-8l/q4_0_m", "moe-8l/q4_k_m"]


def measure(text: str, arguments: Any) -> dict[str, Any]:
    with opened(text, arguments) as (case, ours, theirs):
        # The first prompts of a process are cut into smaller steps, until its rate is known.
        for side in filter(None, (ours, theirs)):
            side.ask("prefill", arguments.tokens)
        our_rates, their_rates = in_turns(arguments.rounds, ours, theirs, "prefill", arguments.tokens)
        isa = ours.ask("about")["isa"]
    ratio = median(our_rates) / median(their_rates)
    bar = arguments.asked or (MIXTURE_RATIO if case.shape == "moe-8l" else RATIO_BARS.get(case.kind))
    is_missed = bar is not None and not math.isnan(ratio) and ratio < bar
    return {
        "case": case.name, "isa": isa, "threads": arguments.threads, "tokens": arguments.tokens, "rates": our_rates,
        "peer_rates": their_rates, "tokens_per_s": median(our_rates), "peer": median(their_rates), "ratio": ratio,
        "missed": [f"ratio {ratio:.2f} < {bar}"] if is_missed else [],
    }  # fmt: skip


def main() -> None:
    made = parser(__doc__, CASES)
    made.add_argument("--tokens", type=int, default=512, help="tokens of the prompt, at most 1000")
    made.add_argument("--asked", type=float, help="least ratio to llama.cpp, in the place of the bars")
    arguments = made.parse_args()
    results = [measure(text, arguments) for text in arguments.cases]
    rows = [[r["case"], r["isa"], f"{r['tokens_per_s']:.1f}", f"{r['peer']:.1f}", f"{r['ratio']:.2f}"] for r in results]
    failures = [f"{r['case']}: {what}" for r in results for what in r["missed"]]
    verdict = [f"missed: {'; '.join(failures)}" if failures else "every bar that was measured is reached"]
    table = markdown_table(["case", "ISA", "tokens/s", "llama.cpp", "ratio"], rows)
    report({"results": results}, table + verdict, as_json=arguments.json)
    sys.exit(arguments.check and bool(failures))


if __name__ == "__main__":
    main()
