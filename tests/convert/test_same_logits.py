"""A converted model computes what its source computes: bit for bit where nothing is rounded."""

from __future__ import annotations

import json

import numpy as np
import pytest

import edgert
from edgert.convert import convert
from edgert.quant import format as formats

from .conftest import GGUF_CONFIG, LLAMA, MOE, llama_shapes, safetensors_file

TOKENS = [1, 17, 250, 3, 99, 42, 7, 7, 123]


def logits(path) -> np.ndarray:
    with edgert.load(path, threads=1, context=64) as llm:
        return np.array(llm.logits(TOKENS))


@pytest.mark.parametrize("dtype", ["float16", "float32", "uint16"])
@pytest.mark.parametrize("config", [LLAMA, MOE], ids=["llama", "moe"])
def test_floats_give_the_same_bits(make_folder, tmp_path, config, dtype):
    source = make_folder(config, dtype)
    convert(source.path, tmp_path / "out", quant="keep")
    assert np.array_equal(logits(source.path), logits(tmp_path / "out"))


@pytest.mark.parametrize(
    "kind", ["f16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"]
)
def test_blocks_of_a_gguf_file_give_the_same_bits(make_gguf, tmp_path, kind):
    path, _ = make_gguf(kind)
    convert(path, tmp_path / "out", quant="keep")
    assert np.array_equal(logits(path), logits(tmp_path / "out"))


def test_a_file_of_several_types(make_gguf, make_folder, tmp_path):
    """As llama.cpp's Q2_K and Q3_K_L are: near the logits of the same weights in float32."""
    others = {"v_proj": "q3_k", "o_proj": "q5_k", "down_proj": "q4_k", "embed_tokens": "q6_k"}
    path, raws = make_gguf("q2_k", others=others)
    found = logits(path)
    convert(path, tmp_path / "out", quant="keep")
    assert np.array_equal(found, logits(tmp_path / "out"))
    floats = {}
    for name, shape in llama_shapes(GGUF_CONFIG):
        made = formats.get(others.get(name.split(".")[-2], "q2_k") if len(shape) == 2 else "f32")
        floats[name] = made.dequantize(made.decode(raws[name], shape[-1])).reshape(shape)
    source = make_folder(GGUF_CONFIG, "float32")
    safetensors_file(source.path / "model.safetensors", floats)
    expected = logits(source.path)
    assert np.linalg.norm(found - expected) <= 0.03 * np.linalg.norm(expected)


@pytest.mark.parametrize(("target", "bound"), [("p8", 0.1), ("q8_0", 0.1), ("p4", 0.5), ("p3", 0.9)])
def test_more_bits_lose_less(make_folder, tmp_path, target, bound):
    source = make_folder(LLAMA)
    convert(source.path, tmp_path / "out", quant=target)
    expected, found = logits(source.path), logits(tmp_path / "out")
    assert np.linalg.norm(found - expected) <= bound * np.linalg.norm(expected)


def test_a_damaged_folder_does_not_load(make_folder, tmp_path):
    source = make_folder()
    convert(source.path, tmp_path / "out", quant="p4")
    file = tmp_path / "out/model.safetensors"
    data = file.read_bytes()
    for broken in (data[:-1], data[: len(data) // 2], bytes(8) + data[8:], data + b"x"):
        file.write_bytes(broken)
        with pytest.raises(edgert.EdgertError):
            logits(tmp_path / "out")
    file.write_bytes(data.replace(rb"\"format\":\"p4\"", rb"\"format\":\"p3\""))
    with pytest.raises(edgert.EdgertError):
        logits(tmp_path / "out")
    config = json.loads((tmp_path / "out/config.json").read_text())
    file.write_bytes(data)
    (tmp_path / "out/config.json").write_text(json.dumps(config | {"hidden_size": 128}))
    with pytest.raises(edgert.EdgertError):
        logits(tmp_path / "out")
