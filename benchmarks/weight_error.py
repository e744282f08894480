"""What do our formats lose? Relative squared error of a model's matrices, and with --text the divergence of its logits.

    python benchmarks/weight_error.py ../shared/models/zoo-16m
    python benchmarks/weight_error.py ../shared/models/zoo-16m --text ../shared/text/wiki.test.raw

Everything is rounded as it is stored: int8 tables, bf16 and f16 scales. The error is sum((w - w')^2) / sum(w^2) of each
matrix, and of these the mean over the matrices. The divergence is KL(as it is || converted), mean over the positions,
in windows of 500 tokens. `c4+` is a c4 with 0.3 % of the weights as outliers beside it; --kinds names those whose
divergence is wanted. Exit code 0 if a c4 loses no more than q4_0 does, and its views at most 1.08 times as much as
c3 and c2.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from _common import import_tree, markdown_table, report
from numpy.typing import NDArray

import_tree()
import edgert  # noqa: E402
from edgert.convert import convert  # noqa: E402
from edgert.convert.source import SourceFiles  # noqa: E402
from edgert.loader import open_model  # noqa: E402
from edgert.quant import format as formats  # noqa: E402
from edgert.quant import outliers  # noqa: E402
from edgert.quant.format import Quantized  # noqa: E402
from edgert.quant.quantizers import quantizer  # noqa: E402

KINDS = ("p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "c2", "c3", "c4", "ternary", "q4_0", "q4_k")
VIEWED = ("c4", "p4")
WITH_OUTLIERS = ("p2", "c2", "p4", "c4")
OUTLIER_SHARE = 0.003
# A kind may lose so many times as much as another.
BARS = (("c4", "q4_0", 1.0), ("c4@3", "c3", 1.08), ("c4@2", "c2", 1.08))
WINDOW = 500

F32 = NDArray[np.float32]


def relative_error(x: F32, y: F32) -> float:
    wide = x.astype(np.float64)
    return float(((wide - y) ** 2).sum() / (wide**2).sum())


def view(kind: str, matrix: Quantized, bits: int, shape: tuple[int, int]) -> F32:
    """The matrix from the leading parts of what is stored."""
    narrow = formats.get(f"{kind[0]}{bits}")
    parts = formats.get(kind).pack(matrix)[: len(narrow.spec.parts)]
    factor = np.float32(2 ** (int(kind[1]) - bits) if kind.startswith("p") else 1)
    return factor * narrow.dequantize(narrow.unpack(parts, *shape))


def with_outliers(kind: str, x: F32) -> F32:
    """The matrix as it is computed with outliers beside it."""
    chosen = outliers.choose(x, OUTLIER_SHARE)
    dense = formats.get(kind).dequantize(quantizer(kind)(np.where(chosen, np.float32(0), x)))
    return outliers.take(x, chosen, dense).add_to(dense)


def errors_of(x: F32) -> dict[str, float]:
    """Of each kind that the columns fill, and of its views."""
    found = {}
    for kind in KINDS:
        made = formats.get(kind)
        if x.shape[1] % (made.spec.block_columns or 1):
            continue
        matrix = quantizer(kind)(x)
        found[kind] = relative_error(x, made.dequantize(matrix))
        if kind in WITH_OUTLIERS:
            found[f"{kind}+"] = relative_error(x, with_outliers(kind, x))
        if kind in VIEWED:
            for bits in range(int(kind[1]) - 1, 1, -1):
                found[f"{kind}@{bits}"] = relative_error(x, view(kind, matrix, bits, x.shape))
    return found


def mean_errors(path: Path) -> dict[str, float]:
    model = open_model(path)
    rows: dict[str, list[float]] = {}
    with SourceFiles(model.checkpoint) as files:
        for source in model.weights.values():
            if source.cols:
                matrix = files.rows(source, 0, source.rows)
                for kind, error in errors_of(formats.get(source.entry.format).dequantize(matrix)).items():
                    rows.setdefault(kind, []).append(error)
    return {kind: float(np.mean(found)) for kind, found in rows.items()}


def logits(path: Path, ids: list[int], bits: int | None = None) -> F32:
    with edgert.load(path, context=WINDOW, bits=bits) as llm:
        return np.concatenate([llm.logits(ids[i : i + WINDOW]) for i in range(0, len(ids), WINDOW)])


def log_softmax(values: F32) -> NDArray[np.float64]:
    shifted = values.astype(np.float64) - values.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def divergences(path: Path, text: Path, num_tokens: int, kinds: list[str]) -> dict[str, float]:
    """Mean KL of each kind, in nats."""
    with edgert.load(path, context=WINDOW) as llm:
        assert llm.tokenizer is not None
        ids = llm.tokenizer.encode(text.read_text(encoding="utf-8")[: 8 * num_tokens])[:num_tokens]
    reference = log_softmax(logits(path, ids))
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in kinds:
            stored, _, bits = name.partition("@")
            folder = Path(scratch) / stored
            if not folder.exists():
                kind = stored.removesuffix("+")
                convert(path, folder, quant=kind, outliers=OUTLIER_SHARE if kind != stored else None)
            other = log_softmax(logits(folder, ids, int(bits) if bits else None))
            found[name] = float((np.exp(reference) * (reference - other)).sum(axis=-1).mean())
    return found


def bits_of(name: str) -> float:
    """Bits a weight, without 32 for each row of a matrix that has outliers."""
    stored = name.partition("@")[0]
    kind = stored.removesuffix("+")
    return formats.get(kind).spec.bits + (32 * OUTLIER_SHARE if kind != stored else 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="Hugging Face folder or GGUF file, in floats")
    parser.add_argument("--text", type=Path, help="also compare logits over this text")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--kinds", nargs="+", help="divergence of these only")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    errors = mean_errors(arguments.model)
    kinds = arguments.kinds or list(errors)
    kl = divergences(arguments.model, arguments.text, arguments.tokens, kinds) if arguments.text else {}
    ratios = {f"{kind} / {other}": errors[kind] / errors[other] for kind, other, _ in BARS}
    rows = [
        [name, f"{bits_of(name):.2f}", f"{errors[name]:.5f}"]
        + ([f"{kl[name]:.4f}" if name in kl else ""] if kl else [])
        for name in errors
    ]
    lines = markdown_table(["format", "bits stored", "error", *(["KL"] if kl else [])], rows)
    lines += ["", ", ".join(f"{name} {ratio:.3f}" for name, ratio in ratios.items())]
    report({"errors": errors, "kl": kl, "ratios": ratios}, lines, as_json=arguments.json)
    sys.exit(any(errors[kind] > bar * errors[other] for kind, other, bar in BARS))


if __name__ == "__main__":
    main()
