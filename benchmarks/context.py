"""How does a long context cost time? Decode by context, attention against the memory; reading, against the FMA peak.

At each length both sides decode some tokens in turns (A B A B ...), medians. Attention's time comes from edgert's own
profile of its steps; it is held against the bytes of the KV cache over the bandwidth of the same run. While the
context is filled, the multiply-adds of causal attention over the float32 peak are what reading is held against.

    python benchmarks/synth.py llama-1b llama-1b.gguf --format q4_0_m --context 33792
    python benchmarks/context.py llama-1b.gguf --peer-python PEER --check
    python benchmarks/context.py llama-1b.gguf --contexts 8192 --kv-format f16 --check
"""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from _common import Side, markdown_table, report
from _duel import in_turns, median

CONTEXTS = (0, 1024, 4096, 8192, 16384, 32768)
# Bars: decode at this context, and reading up to that one.
DECODE_BAR, DECODE_TOKENS = 1.25, 16384
READ_BAR, READ_TOKENS = 1.5, 8192


def measure(kv_format: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    room = max(arguments.contexts) + arguments.tokens
    run = (arguments.model, arguments.threads, room, kv_format)
    with ExitStack() as stack:
        ours = stack.enter_context(Side(sys.executable, "_context_ours.py", *run))
        theirs = None
        if arguments.peer_python:
            theirs = stack.enter_context(Side(arguments.peer_python, "_context_peer.py", *run))
        about, read_s, rows = ours.ask("about"), 0.0, []
        for length in sorted(arguments.contexts):
            read_s += ours.ask("fill", length)["attention_s"]
            if theirs is not None:
                theirs.ask("fill", length)
            machine = [ours.ask("machine")]
            decoded = in_turns(arguments.rounds, ours, theirs, "decode", arguments.tokens)
            machine.append(ours.ask("machine"))
            step_s, attention_s, peer_s = (
                median([one[key] for one in side])
                for side, key in ((decoded[0], "elapsed_s"), (decoded[0], "attention_s"), (decoded[1], "elapsed_s"))
            )
            bandwidth, peak = (median([one[key] for one in machine]) for key in ("bandwidth", "fma_peak"))
            rows.append({
                "kv_format": kv_format, "isa": about["isa"], "context": length, "tokens_per_s": 1 / step_s,
                "peer_tokens_per_s": 1 / peer_s, "attention_s": attention_s, "bandwidth": bandwidth,
                "kv_s": length * about["kv_token_bytes"] / bandwidth, "read_attention_s": read_s, "fma_peak": peak,
                "read_s_at_peak": about["macs_per_pair"] * length * (length + 1) / 2 / peak,
            })  # fmt: skip
    return rows


def missed(row: dict[str, Any]) -> list[str]:
    """The bars that this length does not reach, in words."""
    out = []
    for length, bar, name, time_s, limit_s in (
        (DECODE_TOKENS, DECODE_BAR, "decode", row["attention_s"], row["kv_s"]),
        (READ_TOKENS, READ_BAR, "reading", row["read_attention_s"], row["read_s_at_peak"]),
    ):
        if row["context"] == length and time_s > bar * limit_s:
            out.append(f"{row['kv_format']} {name} at {length}: {time_s / limit_s:.2f} > {bar}")
    return out


def line(row: dict[str, Any]) -> list[str]:
    def ratio(time_s: float, limit_s: float) -> str:
        return f"{time_s / limit_s:.2f}" if limit_s else ""

    return [
        row["kv_format"], str(row["context"]), f"{row['tokens_per_s']:.1f}", f"{row['peer_tokens_per_s']:.1f}",
        f"{row['tokens_per_s'] / row['peer_tokens_per_s']:.2f}", f"{1e3 * row['attention_s']:.2f}",
        f"{1e3 * row['kv_s']:.2f}", ratio(row["attention_s"], row["kv_s"]), f"{row['read_attention_s']:.2f}",
        f"{row['read_s_at_peak']:.2f}", ratio(row["read_attention_s"], row["read_s_at_peak"]),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="GGUF file; without --peer-python any model")
    parser.add_argument("--contexts", type=int, nargs="+", default=CONTEXTS, metavar="N")
    parser.add_argument("--kv-format", nargs="+", default=("f16", "q8_0"), choices=("f32", "f16", "q8_0"))
    parser.add_argument("--peer-python", help="Python with llama-cpp-python")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=8, help="decoded tokens of each turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="exit code 1 where a bar is missed")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = [row for kv_format in arguments.kv_format for row in measure(kv_format, arguments)]
    failures = [what for row in rows for what in missed(row)]
    verdict = [f"missed: {'; '.join(failures)}" if failures else "every bar that was measured is reached"]
    header = [
        "KV", "context", "tokens/s", "llama.cpp", "ratio", "attention ms", "KV bytes / bandwidth ms", "ratio",
        "reading: attention s", "at the FMA peak s", "ratio",
    ]  # fmt: skip
    report({"rows": rows}, markdown_table(header, [line(row) for row in rows]) + verdict, as_json=arguments.json)
    sys.exit(arguments.check and bool(failures))


if __name__ == "__main__":
    main()
