"""What does a smaller format of the KV cache lose? (KL divergence over a text, against keys and values in f32)

KL(f32 || format) in nats, mean over the positions, for the same weights and tokens; later positions of a window read
more of the cache.

    python benchmarks/kl_kv.py MODEL --text TEXT
"""

import argparse
from pathlib import Path

import numpy as np
from _common import import_tree, markdown_table, report
from kl_llama_cpp import mean_kl
from numpy.typing import NDArray

import_tree()
import edgert  # noqa: E402

FORMATS = ("f16", "q8_0")


def logits(model: Path, kv_format: str, text: str, tokens: int, window: int, threads: int) -> NDArray[np.float32]:
    """[tokens, vocab], every window by itself."""
    with edgert.load(model, threads=threads, context=window, kv_format=kv_format) as llm:  # type: ignore[arg-type]
        assert llm.tokenizer is not None
        # Text enough for the tokens: few are longer than 16 bytes.
        ids = llm.tokenizer.encode(text[: 16 * tokens])[:tokens]
        return np.concatenate([np.array(llm.logits(ids[i : i + window])) for i in range(0, len(ids), window)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="+")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--window", type=int, default=500)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    text = arguments.text.read_text(encoding="utf-8")
    results, rows = [], []
    for model in arguments.model:
        run = (text, arguments.tokens, arguments.window, arguments.threads)
        reference = logits(model, "f32", *run)
        for kv_format in FORMATS:
            kl, same = mean_kl(reference, logits(model, kv_format, *run))
            results.append({"model": model.name, "kv_format": kv_format, "kl": kl, "same_first": same})
            rows.append([model.name, kv_format, f"{kl:.2e}", f"{100 * same:.2f} %"])
    lines = markdown_table(["model", "KV", "KL", "top-1"], rows)
    report({"results": results}, lines, as_json=arguments.json)


if __name__ == "__main__":
    main()
