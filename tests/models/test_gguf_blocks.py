"""Quantised GGUF: rows in RoPE pairs and stacked experts as blocks of q8_0, against the same weights in float32; and
the cache that keeps them packed."""

import json
import os
import shutil
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import edgert
from edgert import _core
from edgert.device.isa import select_isa
from edgert.errors import ConvertError
from edgert.loader import load_weights, open_model

F32 = NDArray[np.float32]
STEP = np.float16(2.0**-9)  # of the golden weights: as a block's scale it makes q8_0 exact
# Activations are rounded to int8 for q8_0, so logits differ; a row in the wrong place moves them by their own size.
TOLERANCE = 0.03

HEADS, KV_HEADS, HEAD_DIM = 4, 2, 16
CONFIG: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}
# Every expert is chosen: rounding cannot change which.
MOE = {"num_experts": 5, "num_experts_per_tok": 5, "moe_intermediate_size": 32, "norm_topk_prob": True}
NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
}


def shapes(is_moe: bool) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {
        "model.embed_tokens.weight": [96, 64],
        "model.norm.weight": [64],
        "lm_head.weight": [96, 64],
    }
    for i in range(2):
        p = f"model.layers.{i}"
        found |= {f"{p}.input_layernorm.weight": [64], f"{p}.post_attention_layernorm.weight": [64]}
        for name, rows in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            found[f"{p}.self_attn.{name}_proj.weight"] = [rows * HEAD_DIM, 64]
        found[f"{p}.self_attn.o_proj.weight"] = [64, HEADS * HEAD_DIM]
        if is_moe:
            found |= {f"{p}.self_attn.{name}_norm.weight": [HEAD_DIM] for name in "qk"}
            found[f"{p}.mlp.gate.weight"] = [5, 64]
        for q in [f"{p}.mlp.experts.{e}" for e in range(5)] if is_moe else [f"{p}.mlp"]:
            size = 32 if is_moe else 96
            found |= {f"{q}.gate_proj.weight": [size, 64], f"{q}.up_proj.weight": [size, 64]}
            found[f"{q}.down_proj.weight"] = [64, size]
    return found


def q8_0(values: F32) -> bytes:
    """Blocks of 32 columns: the scale in f16, then whole numbers."""
    whole = values.reshape(-1, 32) / np.float32(STEP)
    assert np.array_equal(whole, np.rint(whole))
    blocks = np.empty((len(whole), 34), np.uint8)
    blocks[:, :2] = np.frombuffer(STEP.tobytes(), np.uint8)
    blocks[:, 2:] = whole.astype(np.int8).view(np.uint8)
    return blocks.tobytes()


def write_gguf(path: Path, weights: dict[str, F32], is_moe: bool) -> Path:
    """Matrices in q8_0 but the embedding, head and router; q and k of llama in RoPE pairs; experts stacked."""
    tensors: dict[str, F32] = {}
    for name, value in weights.items():
        stem = name.removesuffix(".weight")
        if not stem.startswith("model.layers."):
            short = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}[stem]
            tensors[f"{short}.weight"] = value
            continue
        layer, _, inner = stem.removeprefix("model.layers.").partition(".")
        if ".experts." in name:
            matrix = inner.rsplit(".", 1)[1].removesuffix("_proj")
            key = f"blk.{layer}.ffn_{matrix}_exps.weight"
            tensors[key] = np.concatenate([tensors[key], value[None]]) if key in tensors else value[None]
            continue
        if not is_moe and inner in ("self_attn.q_proj", "self_attn.k_proj"):
            value = value.reshape(-1, 2, HEAD_DIM // 2, 64).swapaxes(1, 2).reshape(value.shape)
        tensors[f"blk.{layer}.{NAMES[inner]}.weight"] = value
    arch = "qwen3moe" if is_moe else "llama"

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    numbers = {"context_length": 128, "embedding_length": 64, "block_count": 2, "feed_forward_length": 96}
    numbers |= {"attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "attention.key_length": HEAD_DIM}
    if is_moe:
        numbers |= {"expert_count": 5, "expert_used_count": 5, "expert_feed_forward_length": 32}
    head = text("general.architecture") + struct.pack("<I", 8) + text(arch)
    head += text(f"{arch}.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5)
    for key, number in numbers.items():
        head += text(f"{arch}.{key}") + struct.pack("<II", 4, number)
    content = b""
    for name, value in tensors.items():
        is_float = value.ndim == 1 or name in ("token_embd.weight", "output.weight") or "gate_inp" in name
        raw = value.tobytes() if is_float else q8_0(value)
        head += text(name) + struct.pack(
            f"<I{value.ndim}QIQ", value.ndim, *value.shape[::-1], 0 if is_float else 8, len(content)
        )
        content += raw + b"\0" * (-len(raw) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 2 + len(numbers)) + head
    path.write_bytes(head + b"\0" * (-len(head) % 32) + content)
    return path


def run(path: Path, ids: NDArray[np.int32]) -> F32:
    model = open_model(path)
    store = _core.WeightStore()
    load_weights(model, store, threads=1)
    runtime = _core.Runtime(
        model.graph.compile_args(),
        store,
        isa=select_isa(),
        threads=1,
        batch_tokens=len(ids),
        context=len(ids),
        kv_format="f32",
        kv_budget_bytes=1 << 24,
    )
    return np.array(runtime.step([_core.Span(runtime.open_sequence(), ids, "all")]))


@pytest.mark.parametrize("is_moe", [False, True], ids=["llama", "qwen3moe"])
def test_blocks_of_a_gguf_file_mean_the_same_as_floats(golden_recipe: Any, tmp_path: Path, is_moe: bool) -> None:
    weights = golden_recipe.make_weights(shapes(is_moe), seed=5)
    config = CONFIG | (MOE | {"model_type": "qwen3_moe"} if is_moe else {"model_type": "llama"})
    ids = np.arange(40, dtype=np.int32) * 7 % 96
    expected = run(golden_recipe.write_folder(tmp_path / "hf", config, weights), ids)
    path = write_gguf(tmp_path / "m.gguf", weights, is_moe)
    formats = {source.entry.format for source in open_model(path).weights.values()}
    assert formats == {"f32", "q8_0"}
    assert np.abs(run(path, ids) - expected).max() <= TOLERANCE * np.abs(expected).max()
    other = {
        name: np.ascontiguousarray(np.roll(v, 1, axis=0)) if "k_proj" in name else v for name, v in weights.items()
    }
    moved = run(write_gguf(tmp_path / "moved.gguf", other, is_moe), ids)
    assert np.abs(moved - expected).max() > 2 * TOLERANCE * np.abs(expected).max()


def make_gguf(golden_recipe: Any, path: Path, *, is_moe: bool = False, seed: int = 5) -> Path:
    return write_gguf(path, golden_recipe.make_weights(shapes(is_moe), seed=seed), is_moe)


def logits(path: Path, *, cache: bool) -> F32:
    with edgert.load(path, threads=1, cache=cache) as llm:
        return np.array(llm.logits(list(range(40))))


@pytest.mark.parametrize("is_moe", [False, True], ids=["llama", "qwen3moe"])
def test_the_cache_is_read_instead_of_the_file(golden_recipe: Any, tmp_path: Path, is_moe: bool) -> None:
    path = make_gguf(golden_recipe, tmp_path / "m.gguf", is_moe=is_moe)
    expected = logits(path, cache=False)
    assert not (tmp_path / "m.gguf.edgert").exists()
    assert (logits(path, cache=True) == expected).all()
    # Other weights, and nothing that shows it: whoever still finds the old ones has read the cache.
    state = path.stat()
    make_gguf(golden_recipe, path, is_moe=is_moe, seed=6)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert (logits(path, cache=True) == expected).all()
    assert (logits(path, cache=False) != expected).any()
    # A folder like any other, but for the tokenizer.
    assert (logits(tmp_path / "m.gguf.edgert", cache=False) == expected).all()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.gguf", "m.gguf.edgert"]


@pytest.mark.parametrize("harm", ["stale", "cut", "config", "kind", "empty"])
def test_a_cache_that_does_not_fit_is_made_again(golden_recipe: Any, tmp_path: Path, harm: str) -> None:
    path, folder = make_gguf(golden_recipe, tmp_path / "m.gguf"), tmp_path / "m.gguf.edgert"
    logits(path, cache=True)
    config = folder / "config.json"
    if harm == "stale":
        make_gguf(golden_recipe, path, seed=6)
    elif harm == "cut":
        os.truncate(folder / "model.safetensors", 9000)
    elif harm == "config":
        config.write_text("{")
    elif harm == "kind":
        config.write_text(json.dumps({**json.loads(config.read_text()), "edgert": 1}))
    else:
        config.unlink()
        (folder / "model.safetensors").unlink()
    expected = logits(path, cache=False)
    assert (logits(path, cache=True) == expected).all()
    assert (logits(folder, cache=False) == expected).all()


def test_a_cache_that_cannot_be_written_is_refused(
    golden_recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = make_gguf(golden_recipe, tmp_path / "m.gguf"), tmp_path / "m.gguf.edgert"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ConvertError, match=r"m\.gguf\.edgert: the cache cannot be written: found other files there"):
        edgert.load(path, cache=True)
    assert (folder / "notes.txt").read_text() == "mine"
    (folder / "notes.txt").unlink()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ConvertError, match="its folder is not writable"):
        edgert.load(path, cache=True)
    monkeypatch.undo()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(ConvertError, match="found 1,000 bytes free"):
        edgert.load(path, cache=True)


def test_a_model_that_lies_ready_needs_no_cache(golden_recipe: Any, tmp_path: Path) -> None:
    config = CONFIG | {"model_type": "llama"}
    golden_recipe.write_folder(tmp_path / "hf", config, golden_recipe.make_weights(shapes(False), seed=5))
    logits(tmp_path / "hf", cache=True)
    assert [p.name for p in tmp_path.iterdir()] == ["hf"]
