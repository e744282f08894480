"""Write a model of a real shape with random weights, directly in any format: seconds, no torch, little memory.

    python benchmarks/synth.py llama-1b OUT --format p4 --tokenizer FOLDER     our folder
    python benchmarks/synth.py llama-1b OUT.gguf --format q4_k_m              a GGUF file (needs the gguf package)
Shapes: llama-1b, llama-1b-8l (half of its layers), llama-8b, qwen3-0.6b, arcee-1b (squared ReLU; folders only), moe-2l
and moe-8l (qwen3-30b-a3b cut to 2 or 8 layers). A format's name gives every matrix that format; q4_0_m, q4_k_m, q2_k_m
and tq2_0_m are the mixes that llama.cpp's quantiser makes for Q4_0, Q4_K_M, Q2_K and TQ2_0.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from _common import import_tree
from _random_weights import BLOCK_FORMATS, ROUTED_EMBEDDING_GAIN, RandomWeights, block_rows
from _shapes import MIXES, SHAPES, Tensor, tensor_format, tensors

import_tree()
from edgert.quant import neurons  # noqa: E402
from edgert.quant.container import ContainerTensor, ContainerWriter, plan_container  # noqa: E402
from edgert.quant.quantizers import TARGETS  # noqa: E402

KINDS = sorted({*TARGETS, *BLOCK_FORMATS, *MIXES})
# Routers are never quantised: f16 in our folders, as conversion leaves them, f32 in GGUF files.
ROUTER_FORMAT, GGUF_ROUTER_FORMAT = "f16", "f32"


def write_folder(shape: str, out: Path, kind: str, tokenizer: Path | None, seed: int, context: int | None) -> int:
    """Writes our folder; returns the bytes of its weights."""
    config = _config(shape, context)
    found = list(tensors(config))
    plan = plan_container(list(_units(config, found, kind)))
    random = RandomWeights(seed)
    out.mkdir(parents=True)
    with ContainerWriter(out / "model.safetensors", plan) as writer:
        for tensor in plan.tensors:
            if len(tensor.shape) == 1:
                writer.write(tensor.name, [np.ones(tensor.shape, np.float32).view(np.uint8)])
            else:
                parts = random.neuron_parts if tensor.is_by_neuron else random.parts
                writer.write(tensor.name, parts(tensor.format, *tensor.shape, _gain(tensor.role, config)))
        writer.finish()
    (out / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    if tokenizer is not None:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(tokenizer / name, out / name)
    return plan.file_bytes


def _units(config: dict[str, Any], found: list[Tensor], kind: str) -> list[list[ContainerTensor]]:
    """The tensors of the folder; gate, up and down of an expert are one unit."""
    units: list[list[ContainerTensor]] = []
    for tensor in found:
        matrix_format = ROUTER_FORMAT if tensor.role == "router" else tensor_format(kind, tensor, config)
        shape = (tensor.rows, tensor.cols) if tensor.cols else (tensor.rows,)
        is_by_neuron = config["hidden_act"] == "relu2" and tensor.role == "mlp_down"
        is_by_neuron = is_by_neuron and neurons.code_bits(matrix_format) > 0
        copies = [
            ContainerTensor(
                tensor.checkpoint_name(expert), matrix_format, shape, tensor.role, is_by_neuron=is_by_neuron
            )
            for expert in range(max(1, tensor.experts))
        ]
        if tensor.experts and tensor.role != "mlp_gate":
            for unit, copy in zip(units[-tensor.experts :], copies, strict=True):
                unit.append(copy)
        else:
            units += [[copy] for copy in copies]
    return units


def write_gguf(shape: str, out: Path, kind: str, tokenizer: Path | None, seed: int, context: int | None) -> int:
    """Writes a GGUF file that llama.cpp opens as well; returns its bytes."""
    import gguf
    from gguf_architectures import ARCHITECTURES, add_config
    from gguf_vocabulary import add_tokenizer

    config = _config(shape, context)
    if config["model_type"] not in ARCHITECTURES:
        sys.exit(f"{out}: found the shape {shape}, expected one that GGUF files are written of; name a folder instead")
    architecture = ARCHITECTURES[config["model_type"]]
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    random = RandomWeights(seed)
    writer = gguf.GGUFWriter(out, gguf.MODEL_ARCH_NAMES[architecture])
    add_config(writer, config, Path(shape))
    add_tokenizer(writer, config, tokenizer)
    found = list(tensors(config))
    for tensor in found:
        matrix_format = _gguf_format(kind, tensor, config)
        lengths = [tensor.rows, block_rows(matrix_format, tensor.cols).shape[1]] if tensor.cols else [4 * tensor.rows]
        byte_shape = [*([tensor.experts] if tensor.experts else []), *lengths]
        quantised = gguf.GGMLQuantizationType[matrix_format.upper()]
        writer.add_tensor_info(
            names.get_name(f"{tensor.name}.weight", try_suffixes=(".weight",)), byte_shape, np.dtype(np.uint8),
            int(np.prod(byte_shape)), quantised,
        )  # fmt: skip
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in found:
        if tensor.cols:
            rows = max(1, tensor.experts) * tensor.rows
            matrix_format = _gguf_format(kind, tensor, config)
            writer.write_tensor_data(random.blocks(matrix_format, rows, tensor.cols, _gain(tensor.role, config)))
        else:
            writer.write_tensor_data(np.ones(tensor.rows, np.float32))
    writer.close()
    return out.stat().st_size


def _gguf_format(kind: str, tensor: Tensor, config: dict[str, Any]) -> str:
    return GGUF_ROUTER_FORMAT if tensor.role == "router" else tensor_format(kind, tensor, config)


def _gain(role: str, config: dict[str, Any]) -> float:
    """Of a matrix's deviation."""
    return ROUTED_EMBEDDING_GAIN if role == "embedding" and "num_experts" in config else 1.0


def _config(shape: str, context: int | None) -> dict[str, Any]:
    return SHAPES[shape] | ({} if context is None else {"max_position_embeddings": context})


def write(
    shape: str, out: Path, kind: str, *, tokenizer: Path | None = None, seed: int = 5, context: int | None = None
) -> int:
    """Writes a GGUF file where `out` ends with .gguf, else our folder; returns the bytes of the weights' file."""
    is_gguf = out.suffix == ".gguf"
    if is_gguf and kind not in {*BLOCK_FORMATS, *MIXES}:
        sys.exit(f"--format: found {kind}, expected a format of GGUF files; name a folder instead of {out.name}")
    return (write_gguf if is_gguf else write_folder)(shape, out, kind, tokenizer, seed, context)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out", type=Path, help="a new folder, or a file that ends with .gguf")
    parser.add_argument("--format", default="p4", choices=KINDS)
    parser.add_argument("--tokenizer", type=Path, help="folder with tokenizer.json and tokenizer_config.json")
    parser.add_argument("--context", type=int, help="positions that the model claims to be made for (default 8192)")
    parser.add_argument("--seed", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.out.exists():
        sys.exit(f"{arguments.out}: found something there, expected a new folder or file")
    num_bytes = write(
        arguments.shape, arguments.out, arguments.format, tokenizer=arguments.tokenizer, seed=arguments.seed,
        context=arguments.context,
    )  # fmt: skip
    print(f"{arguments.out}: {num_bytes / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
