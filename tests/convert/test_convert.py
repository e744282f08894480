"""Conversions from Hugging Face folders: what each tensor becomes, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from edgert.convert import convert, plan_conversion
from edgert.errors import ConvertError, EdgertError, FileFormatError, ModelNotFoundError, UsageError
from edgert.files import open_checkpoint
from edgert.loader import open_model
from edgert.quant import format as formats
from edgert.quant.float_bits import bf16_to_float32
from edgert.quant.quantizers import quantizer

from .conftest import LLAMA, MOE


def stored(path, name: str):
    """(format, codes and scales) of a tensor of our folder."""
    checkpoint = open_checkpoint(path)
    entry = checkpoint.tensors[name]
    made = formats.get(entry.format)
    data = checkpoint.files[entry.file].read_bytes()
    pieces = [(part.offset, part.length) for part in entry.parts] or [(entry.offset, entry.length)]
    parts = [np.frombuffer(data, np.uint8, length, offset) for offset, length in pieces]
    rows, cols = entry.shape if len(entry.shape) == 2 else (1, entry.shape[0])
    return entry.format, made.unpack(parts, rows, cols)


def values(path, name: str) -> np.ndarray:
    kind, matrix = stored(path, name)
    return formats.get(kind).dequantize(matrix)


def as_float32(w: np.ndarray) -> np.ndarray:
    return bf16_to_float32(w) if w.dtype == np.uint16 else w.astype(np.float32)


@pytest.mark.parametrize("dtype", ["float16", "float32", "uint16"])
@pytest.mark.parametrize("config", [LLAMA, MOE], ids=["llama", "moe"])
def test_kept_weights_stay_as_they_are(make_folder, tmp_path, config, dtype):
    source = make_folder(config, dtype)
    result = convert(source.path, tmp_path / "out", quant="keep")
    assert result.notes == ()
    checkpoint = open_checkpoint(tmp_path / "out")
    assert checkpoint.kind == "edgert"
    assert set(checkpoint.tensors) == set(source.weights)
    data = checkpoint.files[0].read_bytes()
    for name, w in source.weights.items():
        entry = checkpoint.tensors[name]
        assert entry.shape == w.shape
        assert data[entry.offset : entry.offset + entry.length] == w.tobytes(), name


@pytest.mark.parametrize("target", ["p1", "p2", "p4", "p7", "p8", "c2", "c3", "c4", "q8_0", "f16"])
def test_every_matrix_but_routers_gets_the_target(make_folder, tmp_path, target):
    source = make_folder(MOE, "uint16")
    convert(source.path, tmp_path / "out", quant=target)
    for name, w in source.weights.items():
        kind, matrix = stored(tmp_path / "out", name)
        if w.ndim == 1 or name.endswith("mlp.gate.weight"):
            assert kind == "bf16", name
            assert np.array_equal(matrix.codes.ravel(), w.ravel())
            continue
        assert kind == target, name
        expected = formats.get(target).dequantize(quantizer(target)(as_float32(w)))
        assert np.array_equal(values(tmp_path / "out", name), expected), name


def test_without_a_target_float_matrices_become_c4(make_folder, tmp_path):
    source = make_folder(MOE)
    convert(source.path, tmp_path / "out")
    formats_of = {name: entry.format for name, entry in open_checkpoint(tmp_path / "out").tensors.items()}
    for name, w in source.weights.items():
        assert formats_of[name] == ("f16" if w.ndim == 1 or name.endswith("mlp.gate.weight") else "c4"), name
    assert json.loads((tmp_path / "out/config.json").read_text())["edgert"]["quantization"] == "c4"


def test_bits_are_a_short_name_for_p_formats(make_folder, tmp_path):
    source = make_folder()
    convert(source.path, tmp_path / "out", q_bits=3)
    assert stored(tmp_path / "out", "model.embed_tokens.weight")[0] == "p3"


def test_a_tied_head_is_stored_once(make_folder, tmp_path):
    source = make_folder(LLAMA)
    convert(source.path, tmp_path / "out", quant="p4")
    tensors = open_checkpoint(tmp_path / "out").tensors
    assert tensors["model.embed_tokens.weight"].format == "p4"
    assert "lm_head.weight" not in tensors


def test_columns_that_do_not_fit_fall_back_and_say_so(make_folder, tmp_path):
    """172 columns fit no block, 64 fit q8_0 but not the 256 of k-quants."""
    source = make_folder(LLAMA)
    result = convert(source.path, tmp_path / "out", quant="q4_k")
    down, gate = (f"model.layers.0.mlp.{n}_proj.weight" for n in ("down", "gate"))
    assert stored(tmp_path / "out", down)[0] == "f16"
    assert stored(tmp_path / "out", gate)[0] == "q8_0"
    assert any(down in note and "f16 instead of q4_k" in note and "172" in note for note in result.notes)
    assert any(gate in note and "q8_0 instead of q4_k" in note for note in result.notes)


@pytest.mark.parametrize(
    "target", ["q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "mxfp4", "tq1_0"]
)
def test_ggml_targets(make_folder, tmp_path, target):
    source = make_folder(LLAMA | {"hidden_size": 256, "intermediate_size": 512}, "float32")
    result = convert(source.path, tmp_path / "out", quant=target)
    assert not [note for note in result.notes if "o_proj" not in note]
    name = "model.layers.1.mlp.down_proj.weight"
    assert stored(tmp_path / "out", name)[0] == target
    expected = formats.get(target).dequantize(quantizer(target)(source.weights[name]))
    assert np.array_equal(values(tmp_path / "out", name), expected)


@pytest.mark.parametrize("target", ["keep", "p4"])
def test_stacked_experts_and_shards_give_the_same_folder(make_folder, tmp_path, target):
    convert(make_folder(MOE, name="a").path, tmp_path / "single", quant=target)
    convert(make_folder(MOE, name="b", stacked=True).path, tmp_path / "stacked", quant=target)
    convert(make_folder(MOE, name="c", shards=3).path, tmp_path / "sharded", quant=target)
    single = (tmp_path / "single/model.safetensors").read_bytes()
    assert (tmp_path / "stacked/model.safetensors").read_bytes() == single
    assert (tmp_path / "sharded/model.safetensors").read_bytes() == single


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_do_not_change_the_file(make_folder, tmp_path, threads, monkeypatch):
    monkeypatch.setattr("edgert.convert.pipeline._CHUNK_VALUES", 2048)
    source = make_folder(MOE)
    convert(source.path, tmp_path / "out", quant="p4", threads=threads)
    monkeypatch.undo()
    convert(source.path, tmp_path / "whole", quant="p4", threads=1)
    assert (tmp_path / "out/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


def test_configuration_and_tokenizer_files_come_along(make_folder, tmp_path):
    source = make_folder()
    (source.path / "tokenizer.json").write_text('{"made": "up"}')
    (source.path / "chat_template.jinja").write_text("{{ bos_token }}")
    (source.path / "README.md").write_text("not copied")
    convert(source.path, tmp_path / "out", quant="p4")
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {
        "SHA256SUMS",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    }
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (tmp_path / "out" / name).read_bytes() == (source.path / name).read_bytes()
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config.pop("edgert") == {"format_version": "1", "quantization": "p4"}
    assert config == source.config
    assert json.loads((tmp_path / "out/generation_config.json").read_text())["eos_token_id"] == [2, 3]


def test_progress_grows_to_the_whole(make_folder, tmp_path):
    seen: list[tuple[int, int]] = []
    source, folder = make_folder().path, tmp_path / "out"
    result = convert(source, folder, quant="p2", progress=lambda done, total: seen.append((done, total)))
    done = [d for d, _ in seen]
    assert done == sorted(done) and done[0] == 0
    assert len({total for _, total in seen}) == 1
    # The weights are read, and what was written is read again for its checksum.
    assert done[-1] == seen[-1][1] == result.source_bytes + result.file_bytes
    assert result.source_bytes in done


def test_the_plan_is_a_value_that_can_be_read(make_folder):
    model = open_model(make_folder(MOE).path)
    text = str(plan_conversion(model, "p4"))
    assert "model.layers.0.mlp.gate.weight  4x64  f16 -> f16  (router, never quantised)" in text
    assert "model.layers.1.mlp.experts.3.up_proj.weight  96x64  f16 -> p4  (asked for)" in text


def test_an_existing_target_is_refused(make_folder, tmp_path):
    source = make_folder()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/precious").write_text("x")
    (tmp_path / "file").write_text("x")
    for name in ("full", "file"):
        with pytest.raises(ConvertError, match="expected a new name"):
            convert(source.path, tmp_path / name)
    assert (tmp_path / "full/precious").exists()
    (tmp_path / "empty").mkdir()
    convert(source.path, tmp_path / "empty")
    assert (tmp_path / "empty/config.json").exists()


def test_what_cannot_be_asked_for_is_refused(make_folder, tmp_path):
    source = make_folder()
    with pytest.raises(UsageError, match=r"nothing.*p1, p2, p3, p4"):
        convert(source.path, tmp_path / "out", quant="nothing")
    with pytest.raises(UsageError, match="expected one of 1, 2, 3, 4, 5, 6, 7, 8"):
        convert(source.path, tmp_path / "out", q_bits=9)
    with pytest.raises(UsageError, match="drop the other"):
        convert(source.path, tmp_path / "out", quant="p4", q_bits=4)
    with pytest.raises(ModelNotFoundError):
        convert(tmp_path / "nowhere", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_our_folder_is_converted_again_only_from_floats(make_folder, tmp_path):
    source = make_folder()
    convert(source.path, tmp_path / "floats", quant="keep")
    convert(source.path, tmp_path / "direct", quant="p4")
    with pytest.raises(ConvertError, match="copy it"):
        convert(tmp_path / "floats", tmp_path / "again", quant="keep")
    with pytest.raises(ConvertError, match="convert the original"):
        convert(tmp_path / "direct", tmp_path / "again", quant="p2")
    convert(tmp_path / "floats", tmp_path / "again", quant="p4")
    direct = (tmp_path / "direct/model.safetensors").read_bytes()
    assert (tmp_path / "again/model.safetensors").read_bytes() == direct


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_weights_that_are_not_finite_are_refused(make_folder, tmp_path, value):
    from .conftest import safetensors_file

    source = make_folder()
    source.weights["model.layers.1.mlp.up_proj.weight"][3, 5] = value
    safetensors_file(source.path / "model.safetensors", source.weights)
    with pytest.raises(FileFormatError, match=r"up_proj.*not finite"):
        convert(source.path, tmp_path / "out", quant="p4")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_a_source_that_shrinks_is_an_error(make_folder, tmp_path):
    source = make_folder()
    file = source.path / "model.safetensors"

    def truncate(done: int, total: int) -> None:
        with open(file, "r+b") as f:
            f.truncate(file.stat().st_size // 2 if done == 0 else file.stat().st_size)

    with pytest.raises(EdgertError, match="download the file again"):
        convert(source.path, tmp_path / "out", quant="p4", progress=truncate)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]
