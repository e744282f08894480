"""Conversions from GGUF: blocks are taken over, rows and experts get Hugging Face meaning, the vocabulary stays."""

from __future__ import annotations

import json

import numpy as np
import pytest

from edgert.convert import convert
from edgert.errors import UnsupportedFormatError
from edgert.files import open_checkpoint
from edgert.loader import open_model
from edgert.quant import format as formats
from edgert.quant.quantizers import quantizer

from .gguf_files import GGUF_METADATA
from .test_convert import stored, values

GGML = [
    "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4",
    "tq1_0", "tq2_0",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["f32", "f16", *GGML])
def test_blocks_are_taken_over_in_hugging_face_order(make_gguf, tmp_path, kind):
    path, raws = make_gguf(kind)
    convert(path, tmp_path / "out", quant="keep")
    for name, raw in raws.items():
        found, matrix = stored(tmp_path / "out", name)
        cols = 256 if not name.endswith("down_proj.weight") else 512
        expected = formats.get(found).decode(raw, cols)
        assert found == (kind if "norm" not in name else "f32")
        assert np.array_equal(matrix.codes, expected.codes), name
        for a, b in zip(matrix.scales, expected.scales, strict=True):
            assert np.array_equal(a, b), name


@pytest.mark.parametrize("kind", ["f16", "q8_0", "q4_k"])
def test_blocks_are_quantised_again_when_asked(make_gguf, tmp_path, kind):
    path, raws = make_gguf(kind)
    convert(path, tmp_path / "out", quant="p4")
    for name in ("model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.up_proj.weight"):
        made = formats.get(kind)
        floats = made.dequantize(made.decode(raws[name], 256))
        expected = formats.get("p4").dequantize(quantizer("p4")(floats))
        assert np.array_equal(values(tmp_path / "out", name), expected)


def test_blocks_are_not_quantised_twice_unasked(make_gguf, tmp_path):
    path, _ = make_gguf("q4_k")
    convert(path, tmp_path / "kept", quant="keep")
    convert(path, tmp_path / "out")
    assert (tmp_path / "out/model.safetensors").read_bytes() == (tmp_path / "kept/model.safetensors").read_bytes()


def test_blocks_of_the_target_are_not_rounded_twice(make_gguf, tmp_path):
    path, raws = make_gguf("q4_0")
    convert(path, tmp_path / "out", quant="q4_0")
    _, matrix = stored(tmp_path / "out", "model.layers.0.mlp.gate_proj.weight")
    expected = formats.get("q4_0").decode(raws["model.layers.0.mlp.gate_proj.weight"], 256)
    assert np.array_equal(matrix.codes, expected.codes)


def test_the_folder_is_a_model_with_the_same_configuration(make_gguf, tmp_path):
    path, _ = make_gguf("f16")
    convert(path, tmp_path / "out", quant="keep")
    before, after = open_model(path), open_model(tmp_path / "out")
    assert after.checkpoint.kind == "edgert"
    assert after.graph.nodes == before.graph.nodes
    assert after.graph.ropes == before.graph.ropes
    assert after.stop_tokens == before.stop_tokens
    assert after.context_length == before.context_length


def test_a_type_that_is_not_supported_is_named_with_its_tensor(make_gguf, tmp_path):
    path, _ = make_gguf("iq2_xxs")
    with pytest.raises(UnsupportedFormatError, match=r"iq2_xxs"):
        convert(path, tmp_path / "out", quant="keep")
    assert not (tmp_path / "out").exists()


def test_the_vocabulary_survives(make_gguf, tmp_path):
    from edgert.tokenizer.gguf import from_gguf

    letters = [chr(c) for c in range(33, 127)] + ["Ġ"]
    tokens = ["<s>", "</s>", *letters, "he", "ll", "hell", "Ġw", "<|end|>"]
    tokens += [f"<extra{i}>" for i in range(300 - len(tokens))]
    control = {0, 1, tokens.index("<|end|>")}
    metadata = GGUF_METADATA | {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if i in control else 1 for i in range(len(tokens))],
        "tokenizer.ggml.merges": ["h e", "l l", "he ll", "Ġ w"],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.eot_token_id": tokens.index("<|end|>"),
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": "{{ messages[0]['content'] }}",
    }
    path, _ = make_gguf("f16", metadata)
    convert(path, tmp_path / "out", quant="p4")

    import tokenizers

    rebuilt = tokenizers.Tokenizer.from_file(str(tmp_path / "out/tokenizer.json"))
    original = from_gguf(open_checkpoint(path).metadata)
    assert original is not None
    for text in ("hello world", "he said: hell!", "<|end|>x"):
        assert rebuilt.encode(text).ids == original.encode(text, parse_special=True)
    config = json.loads((tmp_path / "out/tokenizer_config.json").read_text())
    assert config["chat_template"] == "{{ messages[0]['content'] }}"
    assert (config["bos_token"], config["eos_token"]) == ("<s>", "</s>")
    assert open_model(tmp_path / "out").stop_tokens == open_model(path).stop_tokens
    assert tokens.index("<|end|>") in open_model(path).stop_tokens
