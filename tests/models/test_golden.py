"""Logits of every architecture against transformers in float32: from folders, sharded and stacked, and from GGUF."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convert.gguf_files import gguf_file
from numpy.typing import NDArray

from edgert import _core
from edgert.convert import convert
from edgert.device.isa import select_isa
from edgert.errors import ConfigError, FileFormatError
from edgert.files import open_checkpoint
from edgert.loader import load_weights, open_model

LARGEST_RELATIVE_DIFFERENCE = 2e-4
Golden = Callable[[str], Any]


def run(path: Path, ids: NDArray[np.int32], most: int | None = None) -> NDArray[np.float32]:
    """Logits [len(ids), vocab_size], by steps of `most` tokens; None: by one.

    Dynamic RoPE depends on the context: in transformers it is the length.
    """
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
    cuts = [ids[at : at + (most or len(ids))] for at in range(0, len(ids), most or len(ids))]
    logits = [np.array(runtime.step([_core.Span(sequence, cut, "all")])) for cut in cuts]
    runtime.release(sequence)
    return np.concatenate(logits)


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


@pytest.mark.parametrize(
    ("theirs", "other"),
    [
        ("language_model.model.", "model.language_model."),
        ("vision_tower.", "model.vision_tower."),
        ("multi_modal_projector.", "model.multi_modal_projector."),
    ],
)
def test_the_text_of_a_model_that_reads_images(golden: Golden, theirs: str, other: str, tmp_path: Path) -> None:
    """Its tensors have two spellings; what belongs to neither part is refused."""
    model = golden("gemma3_images")
    expected = run(model.write(tmp_path / "a"), model.ids)
    renamed = {re.sub(f"^{re.escape(theirs)}", other, name): value for name, value in model.weights.items()}
    assert renamed.keys() != model.weights.keys()
    found = run(replace(model, weights=renamed).write(tmp_path / "b"), model.ids)
    assert np.array_equal(found, expected)
    assert open_model(tmp_path / "b").stop_tokens == (1, 7)
    odd = model.weights | {"audio_tower.weight": model.logits}
    with pytest.raises(FileFormatError, match=r"'audio_tower\.weight' found, the architecture does not use it"):
        open_model(replace(model, weights=odd).write(tmp_path / "c"))
    twice = model.weights | renamed
    if theirs.startswith("language"):
        with pytest.raises(FileFormatError, match=r"'model\..*found it under two names"):
            open_model(replace(model, weights=twice).write(tmp_path / "e"))
    config = {key: value for key, value in model.config.items() if key != "text_config"}
    with pytest.raises(ConfigError, match=r"config\.json: text_config: found nothing"):
        open_model(replace(model, config=config).write(tmp_path / "d"))


@pytest.mark.parametrize("name", ["gemma2", "gemma3", "granite"])
def test_a_converted_gguf_gives_the_same_bits(golden: Golden, name: str, tmp_path: Path) -> None:
    """What the metadata says goes into config.json: the offset of norms, windows, caps and scales."""
    model = golden(name)
    convert(model.gguf, tmp_path / "out", quant="keep")
    assert np.array_equal(run(tmp_path / "out", model.ids), run(model.gguf, model.ids))


def test_a_converted_folder_is_the_text_alone(golden: Golden, tmp_path: Path) -> None:
    model = golden("gemma3_images")
    convert(model.write(tmp_path / "in"), tmp_path / "out", quant="keep")
    assert np.array_equal(run(tmp_path / "out", model.ids), run(tmp_path / "in", model.ids))
    assert open_model(tmp_path / "out").config["model_type"] == "gemma3_text"


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


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe"])
def test_a_prompt_gives_the_same_bits_however_it_is_cut(name: str, golden: Golden, tmp_path: Path) -> None:
    """Experts get any number of tokens of a step; those of one token do not lie in tiles."""
    model = golden(name)
    ids = np.resize(model.ids, 50).astype(np.int32)
    convert(model.write(tmp_path / "source"), tmp_path / "p4", quant="p4")
    whole = run(tmp_path / "p4", ids)
    for most in (17, 16, 15, 2, 1):
        assert (run(tmp_path / "p4", ids, most) == whole).all(), most
