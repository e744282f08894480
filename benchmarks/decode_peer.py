"""Does decoding of one GGUF file keep up with llama.cpp? Both in turns (A B A B ...), same threads, medians.

llama.cpp is timed twice: as a Python program drives it (llama-cpp-python's eval), and through its C
interface alone. edgert is timed through its public Python API (stream: scheduler, sampler, detokenizer included).

    python benchmarks/decode_peer.py zoo-16m-q8_0.gguf --peer-python PEER --threads 2
"""

import argparse
import statistics
import sys
from pathlib import Path

from _common import report, run_child


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--peer-python", required=True, help="Python with llama-cpp-python")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=256, help="decoded tokens of each run")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--asked", type=float, default=1.0, help="least ratio to llama.cpp as Python drives it")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    ours, python, c, version = [], [], [], ""
    for _ in range(arguments.rounds):
        ours.append(
            run_child(sys.executable, "_ours.py", "decode", arguments.gguf, arguments.threads, arguments.tokens)[
                "python"
            ]
        )
        peer = run_child(
            arguments.peer_python, "_peer.py", "decode", arguments.gguf, arguments.threads, arguments.tokens
        )
        python.append(peer["python"])
        c.append(peer["c"])
        version = peer["version"]
    rate, python_rate, c_rate = (statistics.median(values) for values in (ours, python, c))
    result = {
        "edgert": ours, "llama_cpp_python": python, "llama_cpp_c": c, "version": version, "threads": arguments.threads,
        "ratio_python": rate / python_rate, "ratio_c": rate / c_rate, "asked": arguments.asked,
    }  # fmt: skip
    lines = [
        f"tokens/s, {arguments.rounds} rounds of {arguments.tokens} tokens, {arguments.threads} threads, "
        f"llama-cpp-python {version}",
        f"edgert           {' '.join(f'{value:.0f}' for value in ours)}",
        f"llama-cpp-python {' '.join(f'{value:.0f}' for value in python)}",
        f"llama.cpp in C   {' '.join(f'{value:.0f}' for value in c)}",
        f"decode {rate:.0f} tokens/s = {rate / python_rate:.2f} x llama-cpp-python (asked {arguments.asked}), "
        f"{rate / c_rate:.2f} x llama.cpp's C interface",
    ]
    report(result, lines, as_json=arguments.json)
    sys.exit(rate < arguments.asked * python_rate)


if __name__ == "__main__":
    main()
