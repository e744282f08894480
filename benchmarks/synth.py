"""Write a model folder of a real shape with random weights, directly in one of the formats (seconds, not minutes).

    python benchmarks/synth.py llama-1b OUT --format p4 --tokenizer FOLDER
Shapes: llama-1b, llama-1b-8l (half of its layers), llama-8b, moe-2l and moe-8l (qwen3-30b-a3b cut to 2 or 8 layers).
"""

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _common import import_tree
from numpy.typing import NDArray

import_tree()
from edgert.quant.container import ContainerTensor, ContainerWriter, plan_container  # noqa: E402
from edgert.quant.float_bits import float32_to_bf16  # noqa: E402

FORMATS = [
    "p2", "p3", "p4", "p8", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl",
    "iq4_xs", "mxfp4", "tq1_0", "tq2_0",
]  # fmt: skip
# Of ggml's formats: the largest product of a code and a sub-scale, as far as bytes can hold them.
LARGEST = {
    "q8_0": 127, "q4_0": 8, "q4_1": 15, "q5_0": 16, "q5_1": 31, "q2_k": 3 * 15, "q3_k": 4 * 128, "q4_k": 15 * 255,
    "q5_k": 31 * 255, "q6_k": 32 * 128, "iq4_nl": 127, "iq4_xs": 127 * 128, "mxfp4": 12, "tq1_0": 1, "tq2_0": 2,
}  # fmt: skip
POOL_BYTES = 1 << 24
WEIGHT_DEVIATION = 0.02


def llama(hidden: int, feed_forward: int, layers: int, heads: int, kv_heads: int, *, is_tied: bool) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
        "intermediate_size": feed_forward, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": hidden // heads, "vocab_size": 128256, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "max_position_embeddings": 8192, "tie_word_embeddings": is_tied, "hidden_act": "silu",
        "torch_dtype": "float16", "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip


def mixture(layers: int) -> dict[str, Any]:
    shape = llama(2048, 6144, layers, 32, 4, is_tied=False)
    return shape | {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "moe_intermediate_size": 768,
        "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 32000, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
    }  # fmt: skip


SHAPES = {
    "llama-1b": llama(2048, 8192, 16, 32, 8, is_tied=True),
    "llama-1b-8l": llama(2048, 8192, 8, 32, 8, is_tied=True),
    "llama-8b": llama(4096, 14336, 32, 32, 8, is_tied=False),
    "moe-2l": mixture(2),
    "moe-8l": mixture(8),
}


def units(config: dict[str, Any], kind: str) -> Iterator[list[ContainerTensor]]:
    """Every tensor of the shape; the three of an expert together."""

    def matrix(name: str, rows: int, cols: int, role: str, matrix_format: str = kind) -> ContainerTensor:
        return ContainerTensor(f"{name}.weight", matrix_format, (rows, cols), role)

    def norm(name: str, size: int) -> list[ContainerTensor]:
        return [ContainerTensor(f"{name}.weight", "f32", (size,), "norm")]

    hidden, feed_forward, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q_rows, kv_rows = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    yield [matrix("model.embed_tokens", config["vocab_size"], hidden, "embedding")]
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}"
        yield norm(f"{p}.input_layernorm", hidden)
        for name, rows in (("q", q_rows), ("k", kv_rows), ("v", kv_rows)):
            yield [matrix(f"{p}.self_attn.{name}_proj", rows, hidden, f"attn_{name}")]
        yield [matrix(f"{p}.self_attn.o_proj", hidden, q_rows, "attn_o")]
        yield norm(f"{p}.post_attention_layernorm", hidden)
        if "num_experts" in config:
            yield norm(f"{p}.self_attn.q_norm", head_dim)
            yield norm(f"{p}.self_attn.k_norm", head_dim)
            yield [matrix(f"{p}.mlp.gate", config["num_experts"], hidden, "router", "f16")]
        experts = [f"{p}.mlp.experts.{e}" for e in range(config.get("num_experts", 0))]
        width = config.get("moe_intermediate_size", feed_forward)
        for unit in experts or [f"{p}.mlp"]:
            projections = [
                matrix(f"{unit}.gate_proj", width, hidden, "mlp_gate"),
                matrix(f"{unit}.up_proj", width, hidden, "mlp_up"),
                matrix(f"{unit}.down_proj", hidden, width, "mlp_down"),
            ]
            yield from ([projections] if experts else [[projection] for projection in projections])
    yield norm("model.norm", hidden)
    if not config["tie_word_embeddings"]:
        yield [matrix("lm_head", config["vocab_size"], hidden, "output")]


class RandomParts:
    """Parts cut out of pools of random bytes at changing offsets: neighbours differ, and nothing is slow."""

    def __init__(self, kind: str, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        codes = self._rng.integers(0, 256, POOL_BYTES, np.uint8)
        if kind == "p8":
            codes[codes == 0x80] = 0x81  # the code -128 never occurs
        scales = self._rng.uniform(0.9, 1.1, POOL_BYTES // 2).astype(np.float32) * WEIGHT_DEVIATION
        if kind in LARGEST:
            halves = (scales / LARGEST[kind]).astype(np.float16).view(np.uint8)
            minima = (scales * np.float32(-0.5)).astype(np.float16).view(np.uint8)
            exponents = 118 + codes % 2  # 12 * 2^(119 - 128) is about the deviation
            self._pools = {"scale": halves, "superscale": halves, "minimum": minima, "exponent": exponents}
        else:
            deviation = 73.3 if kind == "p8" else float(np.sqrt((4 ** int(kind[1:]) - 1) / 3))
            self._pools = {"scale": float32_to_bf16(scales / np.float32(deviation)).view(np.uint8)}
        self._codes = codes

    def part(self, name: str, num_bytes: int) -> NDArray[np.uint8]:
        pool = self._pools.get(name, self._codes)
        begin = int(self._rng.integers(0, POOL_BYTES // 128)) * 64
        repeats = -(-(num_bytes + begin) // POOL_BYTES)
        return np.tile(pool, repeats)[begin : begin + num_bytes]

    def values(self, tensor: ContainerTensor) -> NDArray[np.uint8]:
        """A norm of ones, or the router's random values."""
        if tensor.format == "f32":
            return np.ones(tensor.shape, np.float32).view(np.uint8).reshape(-1)
        drawn = self._rng.normal(0, WEIGHT_DEVIATION, tensor.shape).astype(np.float16)
        return drawn.view(np.uint8).reshape(-1)


def write(shape: str, out: Path, kind: str, tokenizer: Path | None, seed: int) -> int:
    """Writes the folder; returns the bytes of its weights."""
    config = SHAPES[shape]
    plan = plan_container(list(units(config, kind)))
    random = RandomParts(kind, seed)
    out.mkdir(parents=True)
    with ContainerWriter(out / "model.safetensors", plan) as writer:
        for tensor in plan.tensors:
            names = [part.name for part in tensor.spec.parts]
            if tensor.spec.is_float:
                writer.write(tensor.name, [random.values(tensor)])
            else:
                sizes = zip(names, tensor.part_bytes, strict=True)
                writer.write(tensor.name, [random.part(name, num_bytes) for name, num_bytes in sizes])
        writer.finish()
    (out / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    if tokenizer is not None:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(tokenizer / name, out / name)
    return plan.file_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--format", default="p4", choices=FORMATS)
    parser.add_argument("--tokenizer", type=Path, help="folder to copy tokenizer.json and tokenizer_config.json from")
    parser.add_argument("--seed", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.out.exists():
        sys.exit(f"{arguments.out}: found something there, expected a new folder")
    num_bytes = write(arguments.shape, arguments.out, arguments.format, arguments.tokenizer, arguments.seed)
    print(f"{arguments.out}: {num_bytes / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
