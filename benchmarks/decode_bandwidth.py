"""Which share of the memory's read bandwidth does decoding reach, and how much memory does a loaded model take?

A llama-1b in p4 (benchmarks/synth.py makes it, where --model is not given). The bandwidth is measured before, between
and after the decoding runs of the same process; bytes are counted as 4.25 bits (p4) for each weight that a token
touches. Memory: what a process that fills the context has resident, less what `import edgert` had, against the file
and the KV cache of that context.

    python benchmarks/decode_bandwidth.py --threads 2
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _common import import_tree, report, run_child

import_tree()
import synth  # noqa: E402

import edgert  # noqa: E402
from edgert import _core  # noqa: E402
from edgert.quant import format as formats  # noqa: E402

BANDWIDTH_BYTES = 1 << 30
PROMPT_TOKENS = 16
WARM_TOKENS = 8


def touched_weights(config: dict[str, Any]) -> int:
    """Weights of the matrices that one token multiplies with (of experts, the chosen ones)."""
    hidden, head_dim = config["hidden_size"], config["head_dim"]
    q_rows, kv_rows = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    width = config.get("moe_intermediate_size", config["intermediate_size"])
    mlp = 3 * hidden * width * config.get("num_experts_per_tok", 1)
    layer = hidden * (2 * q_rows + 2 * kv_rows) + mlp
    return int(config["num_hidden_layers"] * layer + config["vocab_size"] * hidden)


def kv_bytes(config: dict[str, Any], tokens: int) -> int:
    """Bytes of the f16 KV cache for so many tokens."""
    return int(2 * 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"] * tokens)


def weight_file_bytes(model: Path) -> int:
    return sum(path.stat().st_size for path in model.glob("*.safetensors"))


def measure(model: Path, bits: float, *, threads: int, tokens: int, rounds: int, context: int) -> dict[str, Any]:
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    ids = list(range(100, 100 + PROMPT_TOKENS))
    rates: list[float] = []
    load_begin = time.perf_counter()
    with edgert.load(model, threads=threads, context=context) as llm:
        load_s = time.perf_counter() - load_begin
        list(llm.stream(ids, max_tokens=WARM_TOKENS, temperature=0, ignore_eos=True))
        bandwidths = [_core.read_bandwidth(threads, BANDWIDTH_BYTES) / 1e9]
        for _ in range(rounds):
            stream = llm.stream(ids, max_tokens=tokens + WARM_TOKENS, temperature=0.8, seed=1, ignore_eos=True)
            times = [time.perf_counter() for _ in stream]
            rates.append((len(times) - WARM_TOKENS) / (times[-1] - times[WARM_TOKENS - 1]))
            bandwidths.append(_core.read_bandwidth(threads, BANDWIDTH_BYTES) / 1e9)
    token_bytes = touched_weights(config) * bits / 8
    rate, bandwidth = statistics.median(rates), statistics.median(bandwidths)
    resident = run_child(sys.executable, "_memory.py", model, threads, context)["resident_over_import_bytes"]
    allowed = weight_file_bytes(model) + kv_bytes(config, context)
    return {
        "threads": threads, "tokens_per_s": rate, "rates": rates, "token_bytes": token_bytes,
        "bandwidths_gb_s": bandwidths,
        "share": rate * token_bytes / 1e9 / bandwidth, "load_s": load_s, "file_bytes": weight_file_bytes(model),
        "kv_bytes": kv_bytes(config, context), "resident_over_import_bytes": resident,
        "resident_ratio": resident / allowed,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="folder written by benchmarks/synth.py (default: made for this run)")
    parser.add_argument("--shape", default="llama-1b", choices=synth.SHAPES)
    parser.add_argument("--format", default="p4", choices=synth.FORMATS, help="format of the model's matrices")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--asked", type=float, default=0.70, help="least share of the bandwidth")
    parser.add_argument("--asked-memory", type=float, default=1.1, help="most resident bytes / (file + KV)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model = arguments.model
        if model is None:
            model = Path(scratch) / arguments.shape
            synth.write(arguments.shape, model, arguments.format, None, seed=5)
        result = measure(
            model, formats.get(arguments.format).spec.bits, threads=arguments.threads, tokens=arguments.tokens,
            rounds=arguments.rounds, context=arguments.context,
        )  # fmt: skip
    bandwidth = statistics.median(result["bandwidths_gb_s"])
    lines = [
        f"loaded in {result['load_s']:.1f} s; {' '.join(f'{rate:.1f}' for rate in result['rates'])} tokens/s; "
        f"bandwidth {' '.join(f'{value:.1f}' for value in result['bandwidths_gb_s'])} GB/s",
        f"memory over import {result['resident_over_import_bytes'] / 1e6:.0f} MB = {result['resident_ratio']:.3f} x "
        f"(file {result['file_bytes'] / 1e6:.0f} MB + KV {result['kv_bytes'] / 1e6:.0f} MB) "
        f"(asked {arguments.asked_memory})",
        f"decode {result['tokens_per_s']:.1f} tokens/s x {result['token_bytes'] / 1e6:.0f} MB = "
        f"{100 * result['share']:.0f} % of {bandwidth:.1f} GB/s with {arguments.threads} threads "
        f"(asked {100 * arguments.asked:.0f} %)",
    ]
    report(result, lines, as_json=arguments.json)
    sys.exit(result["share"] < arguments.asked or result["resident_ratio"] > arguments.asked_memory)


if __name__ == "__main__":
    main()
