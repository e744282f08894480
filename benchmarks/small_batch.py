"""What does a pass over n tokens cost, against one over a single token? Tokens of one sequence, logits for all of them.

Steps of the core without the copy of the logits that the public interface makes, after a context of 16 tokens; the
sizes in turns, the median of the rounds for each.

    python benchmarks/small_batch.py --peer-python PEER --models FOLDER --check
    EDGERT_ISA=avx512vnni python benchmarks/small_batch.py llama-1b/p4 --models FOLDER --check
"""

import os
import sys
from typing import Any

from _common import markdown_table, report
from _duel import in_turns, median, opened, parser

SIZES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
CONTEXT = 16
CASES = ["llama-1b/p4:q4_k_m", "llama-1b/p2:q2_k_m"]
# Most of T(n) / T(1), by format and n, on the best instruction set and where EDGERT_ISA names one.
BARS = {"p4": {2: 1.05, 4: 1.10, 8: 1.25, 16: 1.4}, "p2": {2: 1.15, 4: 1.3, 8: 1.6, 16: 2.0}}
BARS_BY_ISA = {"avx512vnni": {"p4": {8: 1.6}}}


def measure(text: str, arguments: Any) -> dict[str, Any]:
    with opened(text, arguments) as (case, ours, theirs):
        for side in filter(None, (ours, theirs)):
            side.ask("batches", SIZES, CONTEXT)
        rounds = in_turns(arguments.rounds, ours, theirs, "batches", SIZES, CONTEXT)
        isa = ours.ask("about")["isa"]
    our_s, their_s = ([median(times) for times in zip(*one, strict=True)] for one in rounds)
    ratios = {n: seconds / our_s[0] for n, seconds in zip(SIZES, our_s, strict=True)}
    forced = os.environ.get("EDGERT_ISA", "")
    bars = (BARS_BY_ISA.get(forced, {}) if forced else BARS).get(case.kind.partition(":")[0], {})
    return {
        "case": case.name, "isa": isa, "threads": arguments.threads, "sizes": SIZES, "seconds": our_s,
        "peer_seconds": their_s, "ratios": ratios,
        "missed": [f"T({n}) / T(1) = {ratios[n]:.2f} > {bar}" for n, bar in bars.items() if ratios[n] > bar],
    }  # fmt: skip


def main() -> None:
    made = parser(__doc__, CASES)
    made.set_defaults(rounds=15)
    arguments = made.parse_args()
    results = [measure(text, arguments) for text in arguments.cases]
    lines: list[str] = []
    for r in results:
        rows = []
        for i, n in enumerate(SIZES):
            cells = [f"{n}", f"{1e3 * r['seconds'][i]:.2f}", f"{r['ratios'][n]:.2f}"]
            if r["peer_seconds"]:
                cells += [f"{1e3 * r['peer_seconds'][i]:.2f}", f"{r['peer_seconds'][i] / r['peer_seconds'][0]:.2f}"]
            rows.append(cells)
        header = ["n", "ms", "T(n) / T(1)"] + (["llama.cpp ms", "its ratio"] if r["peer_seconds"] else [])
        lines += [f"{r['case']}, {r['isa']}, {r['threads']} threads", *markdown_table(header, rows), ""]
    failures = [f"{r['case']}: {what}" for r in results for what in r["missed"]]
    lines.append(f"missed: {'; '.join(failures)}" if failures else "every bar that was measured is reached")
    report({"results": results}, lines, as_json=arguments.json)
    sys.exit(arguments.check and bool(failures))


if __name__ == "__main__":
    main()
