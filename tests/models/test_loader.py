"""The loader: where each weight lies, tensors that are missing, left over or of another shape, end tokens, context."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgert import _core
from edgert.errors import (
    ConfigError,
    FileFormatError,
    ModelNotFoundError,
    OutOfMemoryError,
    UnsupportedFormatError,
    UnsupportedModelError,
)
from edgert.files import Part, TensorEntry
from edgert.files.tensor_types import GGML_TYPES
from edgert.loader import WeightSource, load_weights, open_model

Golden = Callable[[str], Any]


@pytest.fixture
def llama(golden: Golden, tmp_path: Path) -> tuple[Any, Path]:
    return golden("llama"), tmp_path


def edit_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_an_opened_model(llama: tuple[Any, Path]) -> None:
    model, folder = llama
    opened = open_model(model.write(folder))
    assert (opened.model_type, opened.vocab_size, opened.context_length) == ("llama", 100, 128)
    assert opened.stop_tokens == (2,)
    assert list(opened.weights) == list(opened.graph.weights)
    assert opened.num_bytes == sum(value.nbytes for value in model.weights.values())
    source = opened.weights["model.layers.1.mlp.down_proj.weight"]
    assert (source.rows, source.cols, source.role, source.row_order) == (48, 88, "mlp_down", "as_is")
    ((file, offset, length),) = source.ranges()
    raw = (folder / "model.safetensors").read_bytes()[offset : offset + length]
    assert file == 0
    assert raw == model.weights["model.layers.1.mlp.down_proj.weight"].tobytes()


def test_stacked_experts_are_found_row_by_row(golden: Golden, tmp_path: Path) -> None:
    model = golden("qwen3_moe")
    opened = open_model(model.write(tmp_path, is_stacked=True))
    raw = (tmp_path / "model.safetensors").read_bytes()
    for matrix in ("gate", "up", "down"):
        name = f"model.layers.1.mlp.experts.4.{matrix}_proj.weight"
        ((_, offset, length),) = opened.weights[name].ranges()
        assert opened.weights[name].index == 4
        assert raw[offset : offset + length] == model.weights[name].tobytes()


def test_fused_matrices_are_found_row_by_row(golden: Golden, tmp_path: Path) -> None:
    model = golden("phi3")
    opened = open_model(model.write(tmp_path))
    raw = (tmp_path / "model.safetensors").read_bytes()
    for tensor, names in (
        ("self_attn.qkv_proj", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
        ("mlp.gate_up_proj", ("mlp.gate_proj", "mlp.up_proj")),
    ):
        sources = [opened.weights[f"model.layers.1.{name}.weight"] for name in names]
        ranges = [part for source in sources for part in source.ranges()]
        joined = b"".join(raw[offset : offset + length] for _, offset, length in ranges)
        assert joined == model.weights[f"model.layers.1.{tensor}.weight"].tobytes()


@pytest.mark.parametrize("shape", [(79, 48), (81, 48), (80, 47), (2, 40, 48), (3840,)])
def test_fused_matrices_of_another_shape(
    golden: Golden, golden_recipe: Any, tmp_path: Path, shape: tuple[int, ...]
) -> None:
    model = golden("phi3")
    model.weights["model.layers.0.self_attn.qkv_proj.weight"] = np.zeros(shape, np.float32)
    golden_recipe.write_folder(tmp_path, model.config, model.weights)
    with pytest.raises(FileFormatError, match=r"self_attn\.qkv_proj\.weight': found shape"):
        open_model(tmp_path)


def test_a_matrix_that_is_there_alone_and_in_a_fused_one(golden: Golden, golden_recipe: Any, tmp_path: Path) -> None:
    model = golden("phi3")
    model.weights["model.layers.0.self_attn.q_proj.weight"] = np.zeros((48, 48), np.float32)
    golden_recipe.write_folder(tmp_path, model.config, model.weights)
    with pytest.raises(FileFormatError, match=r"qkv_proj\.weight': found shape \[80, 48\], expected 1536 values"):
        open_model(tmp_path)


def test_a_router_that_is_missing(golden: Golden, tmp_path: Path) -> None:
    model = golden("mixtral")
    del model.weights["model.layers.0.block_sparse_moe.gate.weight"]
    model.write(tmp_path)
    with pytest.raises(FileFormatError, match=r"tensor 'model\.layers\.0\.mlp\.gate\.weight' not found"):
        open_model(tmp_path)


def test_rows_of_a_gguf_file_are_marked_for_unpermuting(golden: Golden) -> None:
    opened = open_model(golden("llama_bias").gguf)
    marked = {name: source.heads for name, source in opened.weights.items() if source.row_order == "unpermute_rope"}
    assert marked == {
        f"model.layers.{layer}.self_attn.{name}_proj.{kind}": heads
        for layer in range(2)
        for name, heads in (("q", 6), ("k", 2))
        for kind in ("weight", "bias")
    }
    assert not any(source.heads for source in open_model(golden("qwen3").gguf).weights.values())


def test_the_config_of_a_gguf_file_is_rebuilt(golden: Golden) -> None:
    model = golden("qwen3_moe")
    config = open_model(model.gguf).config
    same = ("model_type", "vocab_size", "hidden_size", "head_dim", "moe_intermediate_size", "norm_topk_prob")
    assert {key: config[key] for key in same} == {key: model.config[key] for key in same}
    assert config["num_experts"] == model.config["num_local_experts"]


def test_end_tokens_are_the_union_of_both_files(llama: tuple[Any, Path], golden: Golden) -> None:
    model, folder = llama
    model.write(folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 2, 5000, -1]}')
    assert open_model(folder).stop_tokens == (2, 7)
    edit_json(folder / "config.json", eos_token_id=None)
    (folder / "generation_config.json").unlink()
    assert open_model(folder).stop_tokens == ()
    assert open_model(golden("llama").gguf).stop_tokens == (2,)
    edit_json(folder / "config.json", eos_token_id="x")
    with pytest.raises(ConfigError, match="eos_token_id: found 'x'"):
        open_model(folder)


def test_yarn_extends_the_context(llama: tuple[Any, Path]) -> None:
    model, folder = llama
    model.write(folder)
    rope = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "rope_theta": 1e4}
    edit_json(folder / "config.json", rope_parameters=rope)
    assert open_model(folder).context_length == 512


def test_a_missing_tensor(llama: tuple[Any, Path]) -> None:
    model, folder = llama
    del model.weights["lm_head.weight"]
    with pytest.raises(FileFormatError, match=r"tensor 'lm_head\.weight' not found, the configuration needs it"):
        open_model(model.write(folder))


def test_a_tied_head_needs_no_tensor_and_ignores_one(llama: tuple[Any, Path]) -> None:
    model, folder = llama
    model.write(folder)
    edit_json(folder / "config.json", tie_word_embeddings=True)
    assert "lm_head.weight" not in open_model(folder).weights


def test_a_tensor_that_is_left_over(llama: tuple[Any, Path]) -> None:
    model, folder = llama
    model.weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)
    open_model(model.write(folder))
    model.weights["model.layers.0.self_attn.q_proj.bias"] = np.ones(48, np.float32)
    with pytest.raises(FileFormatError, match=r"q_proj\.bias' found, the architecture does not use it"):
        open_model(model.write(folder))


def test_a_tensor_of_another_shape(llama: tuple[Any, Path]) -> None:
    model, folder = llama
    name = "model.layers.0.mlp.up_proj.weight"
    model.weights[name] = np.ascontiguousarray(model.weights[name].T)
    with pytest.raises(FileFormatError, match=r"up_proj\.weight': found shape \[48, 88\], expected \[88, 48\]"):
        open_model(model.write(folder))


@pytest.mark.parametrize("shape", [(8, 80, 48), (6, 80, 48), (7, 90, 48), (7, 80, 44), (7, 3840)])
def test_stacked_experts_of_another_shape(
    golden: Golden, golden_recipe: Any, tmp_path: Path, shape: tuple[int, ...]
) -> None:
    model = golden("qwen3_moe")
    weights = golden_recipe.stack_experts(model.weights)
    weights["model.layers.0.mlp.experts.gate_up_proj"] = np.zeros(shape, np.float32)
    golden_recipe.write_folder(tmp_path, model.config, weights)
    with pytest.raises(FileFormatError, match=r"experts\.gate_up_proj': found shape"):
        open_model(tmp_path)


def test_more_layers_than_tensors(llama: tuple[Any, Path]) -> None:
    model, folder = llama
    model.write(folder)
    edit_json(folder / "config.json", num_hidden_layers=1000)
    with pytest.raises(ConfigError, match="num_hidden_layers: found 1000, expected no more layers than the 21 tensors"):
        open_model(folder)


def test_an_architecture_that_is_not_known(llama: tuple[Any, Path]) -> None:
    model, folder = llama
    model.write(folder)
    edit_json(folder / "config.json", model_type="mamba")
    with pytest.raises(UnsupportedModelError, match=r"config\.json: model_type: found 'mamba', expected one of arcee"):
        open_model(folder)
    # Names of modules are made of them: none may be too long for a file, or another module.
    for name in ("x" * 70000, "__init__", "registry", "blocks", "../llama", "a\0b", "sub/llama", "llama.py"):
        edit_json(folder / "config.json", model_type=name)
        with pytest.raises(UnsupportedModelError, match=r"config\.json: model_type: found"):
            open_model(folder)
    edit_json(folder / "config.json", model_type=None)
    with pytest.raises(ConfigError, match="model_type: found nothing"):
        open_model(folder)


def gguf_of_type(path: Path, kind: int, num_bytes: int) -> Path:
    """A GGUF file of one tensor, the embedding, 256 x 4, of that type."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    numbers = {"context_length": 8, "embedding_length": 256, "block_count": 1, "feed_forward_length": 256}
    numbers |= {"attention.head_count": 1, "attention.head_count_kv": 1}
    raw = b"GGUF" + struct.pack("<IQQ", 3, 1, 2 + len(numbers))
    raw += text("general.architecture") + struct.pack("<I", 8) + text("llama")
    raw += text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5)
    for key, value in numbers.items():
        raw += text(f"llama.{key}") + struct.pack("<II", 4, value)
    raw += text("token_embd.weight") + struct.pack("<IQQIQ", 2, 256, 4, kind, 0)
    path.write_bytes(raw + b"\0" * (-len(raw) % 32) + b"\0" * num_bytes)
    return path


@pytest.mark.parametrize("name", ["iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"])
def test_a_type_without_support_is_named_with_its_tensor(tmp_path: Path, name: str) -> None:
    kind, block_bytes = next((kind, size) for kind, (known, _, size) in GGML_TYPES.items() if known == name)
    with pytest.raises(
        UnsupportedFormatError,
        match=rf"tensor 'token_embd\.weight': found type {name}, expected one of bf16.*iq4_nl.*use the model in one",
    ):
        open_model(gguf_of_type(tmp_path / "m.gguf", kind, 4 * block_bytes))


def test_a_vocabulary_alone_is_no_model(tmp_path: Path) -> None:
    key = b"general.architecture"
    raw = b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, len(key)) + key + struct.pack("<IQ", 8, 5) + b"llama"
    (tmp_path / "vocab.gguf").write_bytes(raw)
    with pytest.raises(FileFormatError, match="found a vocabulary and no weights"):
        open_model(tmp_path / "vocab.gguf")


def test_factors_that_are_not_a_short_vector(golden: Golden, tmp_path: Path) -> None:
    raw = golden("llama3").gguf.read_bytes()
    name = b"rope_freqs.weight"
    at = raw.index(name) + len(name) + 4
    path = tmp_path / "m.gguf"
    path.write_bytes(raw[:at] + struct.pack("<Q", 2**20) + raw[at + 8 :])
    with pytest.raises(FileFormatError):
        open_model(path)


def test_ranges_of_packed_parts_and_of_vectors() -> None:
    entry = TensorEntry("w", "p2", (16, 64), 2, 100, 288, (Part("scale", 100, 32), Part("field", 200, 256)))
    packed = WeightSource(name="w", entry=entry, rows=16, cols=64, role="mlp_up")
    assert packed.ranges() == [(2, 100, 32), (2, 200, 256)]
    vector = WeightSource(name="n", entry=TensorEntry("n", "bf16", (7,), 0, 50, 14), rows=7, cols=0, role="norm")
    assert (vector.is_vector, vector.ranges()) == (True, [(0, 50, 14)])
    stacked = TensorEntry("e", "q8_0", (3, 10, 64), 1, 1000, 2040)
    part = WeightSource(name="e.1.up", entry=stacked, rows=5, cols=64, role="expert_up", index=1, first_row=5)
    assert part.ranges() == [(1, 1000 + 15 * 68, 5 * 68)]


def test_loading_reports_progress(llama: tuple[Any, Path]) -> None:
    model, folder = llama
    opened = open_model(model.write(folder))
    seen: list[tuple[int, int]] = []
    store = _core.WeightStore()
    load_weights(opened, store, lambda done, total: seen.append((done, total)), threads=1)
    assert store.num_weights == len(opened.weights)
    assert seen
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_file_that_shrinks_before_it_is_loaded(llama: tuple[Any, Path]) -> None:
    model, folder = llama
    opened = open_model(model.write(folder))
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(10_000)
    with pytest.raises(FileFormatError, match=r"model\.safetensors"):
        load_weights(opened, _core.WeightStore(), threads=1)


def test_a_file_that_is_gone_before_it_is_loaded(llama: tuple[Any, Path]) -> None:
    model, folder = llama
    opened = open_model(model.write(folder))
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelNotFoundError, match=r"model\.safetensors"):
        load_weights(opened, _core.WeightStore(), threads=1)


def test_memory_that_runs_out_is_said(llama: tuple[Any, Path]) -> None:
    model, folder = llama

    class Full:
        def add_file(self, path: str) -> int:
            raise MemoryError

    with pytest.raises(OutOfMemoryError, match="the weights take"):
        load_weights(open_model(model.write(folder)), Full())  # type: ignore[arg-type]


def write_own(folder: Path, model: Any, recipe: Any, described: dict[str, Any]) -> Path:
    """The model as a folder of ours, where o_proj of layer 0 has the format and parts that `described` says."""
    name = "model.layers.0.self_attn.o_proj.weight"
    shape = list(model.weights[name].shape)
    recipe.write_folder(folder, model.config, {n: v for n, v in model.weights.items() if n != name})
    raw = (folder / "model.safetensors").read_bytes()
    length = struct.unpack_from("<Q", raw)[0]
    header = json.loads(raw[8 : 8 + length])
    position = len(raw) - 8 - length
    for part in described["parts"]:
        key = f"{name}#{part['name']}"
        header[key] = {"dtype": "U8", "shape": [part["bytes"]], "data_offsets": [position, position + part["bytes"]]}
        position += part["bytes"]
    parts = [{"name": part["name"], "tensor": f"{name}#{part['name']}"} for part in described["parts"]]
    tensors = {name: {"shape": shape, "role": "attn_o"} | described | {"parts": parts}}
    header["__metadata__"] = {"edgert.format_version": "1", "edgert.tensors": json.dumps(tensors)}
    text = json.dumps(header).encode()
    content = raw[8 + length :].ljust(position, b"\0")
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + content)
    return folder


P2 = [{"name": "scale", "bytes": 96}, {"name": "field", "bytes": 768}]  # 48 x 48: 3 strips, 1 group


def test_packed_parts_must_be_those_of_the_format(golden: Golden, golden_recipe: Any, tmp_path: Path) -> None:
    model = golden("llama")
    opened = open_model(write_own(tmp_path, model, golden_recipe, {"format": "p2", "parts": P2}))
    source = opened.weights["model.layers.0.self_attn.o_proj.weight"]
    assert [length for _, _, length in source.ranges()] == [96, 768]
    load_weights(opened, _core.WeightStore(), threads=1)


@pytest.mark.parametrize(
    ("described", "error", "message"),
    [
        ({"format": "c9", "parts": P2}, UnsupportedFormatError, "found type c9, expected one of .*p2, p3, p4"),
        ({"format": "c2", "parts": P2}, FileFormatError, "expected 'scale' of 96 bytes, 'table' of 32 bytes, 'field'"),
        ({"format": "f16", "parts": P2}, UnsupportedFormatError, "found type f16"),
        ({"format": "p2", "parts": P2[::-1]}, FileFormatError, "found parts 'field' of 768 bytes, 'scale' of 96"),
        ({"format": "p2", "parts": P2[1:]}, FileFormatError, "expected 'scale' of 96 bytes, 'field' of 768"),
        ({"format": "p2", "parts": [P2[0], P2[1] | {"bytes": 700}]}, FileFormatError, "'field' of 700 bytes"),
        ({"format": "p3", "parts": P2}, FileFormatError, "'plane1' of 384 bytes"),
    ],
)
def test_packed_parts_that_are_not_those_of_the_format(
    golden: Golden, golden_recipe: Any, tmp_path: Path, described: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        open_model(write_own(tmp_path, golden("llama"), golden_recipe, described))
