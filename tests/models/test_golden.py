"""Logits of every architecture against transformers in float32: from folders, sharded and stacked, and from GGUF."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convert.gguf_files import gguf_file
from numpy.typing import NDArray

from edgert import _core
from edgert.device.isa import select_isa
from edgert.files import open_checkpoint
from edgert.loader import load_weights, open_model

LARGEST_RELATIVE_DIFFERENCE = 2e-4
Golden = Callable[[str], Any]


def run(path: Path, ids: NDArray[np.int32]) -> NDArray[np.float32]:
    """Logits [len(ids), vocab_size]. Dynamic RoPE depends on the context: in transformers it is the length."""
    model = open_model(path)
    store = _core.WeightStore()
    load_weights(model, store, threads=2)
    runtime = _core.Runtime(
        model.graph.compile_args(),
        store,
        isa=select_isa(),
        threads=2,
        batch_tokens=len(ids),
        context=len(ids),
        kv_format="f32",
        kv_budget_bytes=1 << 26,
    )
    sequence = runtime.open_sequence()
    logits = np.array(runtime.step([_core.Span(sequence, ids, "all")]))
    runtime.release(sequence)
    return logits


def check(found: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= LARGEST_RELATIVE_DIFFERENCE * np.abs(expected).max()
    assert np.array_equal(found.argmax(axis=1), expected.argmax(axis=1))


def test_logits_from_a_folder(golden: Golden, golden_name: str, tmp_path: Path) -> None:
    model = golden(golden_name)
    check(run(model.write(tmp_path), model.ids), model.logits)


def test_old_spelling_and_shards_give_the_same_bits(golden: Golden, golden_name: str, tmp_path: Path) -> None:
    model = golden(golden_name)
    new = run(model.write(tmp_path / "new"), model.ids)
    old = run(model.write(tmp_path / "old", is_old=True, shards=3), model.ids)
    assert np.array_equal(new, old)


def test_stacked_experts_give_the_same_bits(golden: Golden, moe_name: str, tmp_path: Path) -> None:
    model = golden(moe_name)
    single = run(model.write(tmp_path / "single"), model.ids)
    stacked = run(model.write(tmp_path / "stacked", is_stacked=True), model.ids)
    assert np.array_equal(single, stacked)


def test_logits_from_gguf(golden: Golden, gguf_name: str) -> None:
    model = golden(gguf_name)
    check(run(model.gguf, model.ids), model.logits)


def test_gguf_and_folder_give_the_same_bits(golden: Golden, gguf_name: str, tmp_path: Path) -> None:
    """But for factors of RoPE: those of Llama 3 were computed in float32 or float64 before they were stored."""
    model = golden(gguf_name)
    found, expected = run(model.gguf, model.ids), run(model.write(tmp_path), model.ids)
    if model.config["rope_parameters"].get("rope_type") in ("llama3", "longrope"):
        assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    else:
        assert np.array_equal(found, expected)


def test_gguf_with_a_tensor_for_each_expert_gives_the_same_bits(golden: Golden, tmp_path: Path) -> None:
    """blk.N.ffn_up.E.weight, as llama.cpp wrote Mixtral before it stacked experts."""
    model = golden("mixtral")
    stacked = open_checkpoint(model.gguf)
    raw = model.gguf.read_bytes()
    tensors: dict[str, tuple[str, NDArray[np.uint8], tuple[int, ...]]] = {}
    for name, entry in stacked.tensors.items():
        values = np.frombuffer(raw, np.uint8, entry.length, entry.offset)
        if "_exps" not in name:
            tensors[name] = (entry.format, values, entry.shape)
            continue
        for expert, part in enumerate(np.split(values, entry.shape[0])):
            tensors[name.replace("_exps", f".{expert}")] = (entry.format, part, entry.shape[1:])
    metadata = {key: value for key, value in stacked.metadata.items() if not key.startswith("tokenizer.")}
    single = gguf_file(tmp_path / "single.gguf", metadata, tensors)
    assert np.array_equal(run(single, model.ids), run(model.gguf, model.ids))


@pytest.mark.parametrize("name", ["llama", "qwen3_moe"])
def test_a_perturbed_weight_fails_the_check(golden: Golden, name: str, tmp_path: Path) -> None:
    model = golden(name)
    model.weights["model.layers.1.self_attn.k_proj.weight"][3] += 0.05
    with pytest.raises(AssertionError):
        check(run(model.write(tmp_path), model.ids), model.logits)
