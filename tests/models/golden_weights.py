"""The weights of the golden models, made from a seed, and the files that hold them.

Values are small whole numbers times a power of two: exact in f16 and bf16, and the same with every numpy, because only
the raw stream of the generator is used.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

MATRIX_STEP = 2.0**-9
EMBEDDING_STEP = 2.0**-7
VECTOR_STEP = 2.0**-10


# Names of Mixtral's checkpoints, and what transformers 5 calls the same.
MIXTRAL_NAMES = (
    (r"\.block_sparse_moe\.", ".mlp."),
    (r"\.w1\.weight$", ".gate_proj.weight"),
    (r"\.w2\.weight$", ".down_proj.weight"),
    (r"\.w3\.weight$", ".up_proj.weight"),
)


def make_weights(shapes: dict[str, list[int]], seed: int) -> dict[str, F32]:
    """float32 values for each name: matrices around 0, biases around 0, norms around 1."""
    weights: dict[str, F32] = {}
    for index, name in enumerate(sorted(shapes)):
        shape = shapes[name]
        raw = np.random.PCG64([seed, index]).random_raw(int(np.prod(shape)))
        whole = (raw >> np.uint64(56)).astype(np.int64) - 128
        values = np.clip(whole, -127, 127).astype(np.float64).reshape(shape)
        if len(shape) == 1:
            values = values * VECTOR_STEP + (0.0 if name.endswith("bias") else 1.0)
        else:
            values = values * (EMBEDDING_STEP if "embed_tokens" in name else MATRIX_STEP)
        weights[name] = values.astype(np.float32)
    return weights


def stack_experts(weights: dict[str, F32]) -> dict[str, F32]:
    """The same weights with each layer's experts stacked: gate_up_proj [E, 2 I, H] and down_proj [E, H, I]."""
    stacked: dict[str, F32] = {}
    experts: dict[str, dict[tuple[int, str], F32]] = {}
    for name, value in weights.items():
        for theirs, ours in MIXTRAL_NAMES:
            name = re.sub(theirs, ours, name)
        match = re.fullmatch(r"(.+\.experts)\.(\d+)\.(\w+)_proj\.weight", name)
        if match:
            experts.setdefault(match[1], {})[int(match[2]), match[3]] = value
        else:
            stacked[name] = value
    for prefix, parts in experts.items():
        count = 1 + max(expert for expert, _ in parts)
        gate_up = [np.concatenate([parts[e, "gate"], parts[e, "up"]]) for e in range(count)]
        stacked[f"{prefix}.gate_up_proj"] = np.stack(gate_up)
        stacked[f"{prefix}.down_proj"] = np.stack([parts[e, "down"] for e in range(count)])
    return stacked


def write_folder(folder: Path, config: dict[str, Any], weights: dict[str, F32], shards: int = 1) -> Path:
    """A Hugging Face folder; with several shards it has an index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    names = sorted(weights)
    if shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors_bytes(weights))
        return folder
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        chosen = {name: weights[name] for name in names[shard::shards]}
        (folder / file).write_bytes(safetensors_bytes(chosen))
        weight_map.update(dict.fromkeys(chosen, file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def safetensors_bytes(weights: dict[str, F32]) -> bytes:
    """A safetensors file of float32 tensors."""
    header: dict[str, Any] = {}
    position = 0
    for name, value in weights.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(value.shape),
            "data_offsets": [position, position + value.nbytes],
        }
        position += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(value.tobytes() for value in weights.values())


def as_transformers_4(config: dict[str, Any]) -> dict[str, Any]:
    """The same configuration as transformers 4 wrote it."""
    if "text_config" in config:
        return config | {"text_config": as_transformers_4(config["text_config"])}
    old = dict(config)
    rope = dict(old.pop("rope_parameters"))
    if "full_attention" in rope and config["model_type"] == "olmo3":
        rope = dict(rope["full_attention"])
    elif "full_attention" in rope:  # Gemma 3
        old["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        period = 1 + old["layer_types"].index("full_attention")
        if all((kind == "full_attention") == ((i + 1) % period == 0) for i, kind in enumerate(old["layer_types"])):
            del old["layer_types"]
            old["sliding_window_pattern"] = period
        rope = dict(rope["full_attention"])
    old["rope_theta"] = rope.pop("rope_theta")
    old["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    old["torch_dtype"] = old.pop("dtype", "float32")
    if "partial_rotary_factor" in rope:
        old["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    if "num_local_experts" in old and old["model_type"] != "mixtral":
        old["num_experts"] = old.pop("num_local_experts")
    return old
