"""`edgert show` against what the headers say, read here by other means; and files that want to steer the terminal."""

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convert.gguf_files import GGUF_METADATA, gguf_file

from edgert.cli.description import KEYS, group_of
from edgert.cli.show import lay_out, report
from edgert.errors import one_line
from edgert.llm import DEFAULT_MODEL

from .conftest import Run

GOLDEN = Path(__file__).parents[1] / "models" / "golden"


def shown(edgert_run: Run, *arguments: str) -> dict[str, Any]:
    done = edgert_run("show", *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def test_the_bundled_model(edgert_run: Run) -> None:
    values = shown(edgert_run, str(DEFAULT_MODEL), "--tensors")
    config = json.loads((DEFAULT_MODEL / "config.json").read_text())
    assert values.keys() == KEYS.keys()
    assert (values["kind"], values["architecture"], values["can_run"]) == ("edgert", "llama", True)
    assert values["files"] == [
        {
            "path": str(DEFAULT_MODEL / "model.safetensors"),
            "bytes": (DEFAULT_MODEL / "model.safetensors").stat().st_size,
        }
    ]
    assert sum(values["groups"].values()) == values["weight_bytes"]
    assert sum(row["bytes"] for row in values["formats"]) == values["weight_bytes"]
    assert sum(row["share"] for row in values["formats"]) == pytest.approx(1)
    assert sum(tensor["bytes"] for tensor in values["tensors"]) == values["weight_bytes"]
    hidden, mlp, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    matrices = 2 * hidden * (config["num_attention_heads"] * config["head_dim"] + kv) + 3 * hidden * mlp
    rows, norms = config["vocab_size"] * hidden + layers * matrices, (2 * layers + 1) * hidden
    assert values["parameters"] == values["active_parameters"] == rows + norms
    # p8 takes 8.25 bits (docs/formats.md), norms are f16; padding between the parts is no weight.
    assert values["weight_bytes"] == rows * 33 // 32 + 2 * norms
    assert values["kv_bytes_per_1000_tokens"] == 1000 * 2 * 2 * kv * layers
    assert values["context"] == config["max_position_embeddings"]
    vocabulary = json.loads((DEFAULT_MODEL / "tokenizer.json").read_text())
    assert values["tokenizer"]["vocabulary"] == 1 + max(vocabulary["model"]["vocab"].values())
    assert values["tokenizer"]["kind"] == vocabulary["model"]["type"]
    assert values["chat_template"]["is_present"]


def test_a_mixture_of_experts_from_gguf(edgert_run: Run) -> None:
    values = shown(edgert_run, str(GOLDEN / "mixtral.gguf"))
    config = json.loads((GOLDEN / "mixtral.json").read_text())["config"]
    experts, chosen = config["num_local_experts"], config["num_experts_per_tok"]
    one = 3 * config["hidden_size"] * config["intermediate_size"]
    assert values["parameters"] - values["active_parameters"] == config["num_hidden_layers"] * (experts - chosen) * one
    assert values["groups"]["experts"] > values["groups"]["attention"] > 0
    text = edgert_run("show", str(GOLDEN / "mixtral.gguf")).stdout
    assert "for each token" in text
    assert "\x1b" not in text


def test_the_narrower_widths_of_a_folder_of_ours(edgert_run: Run, tmp_path: Path) -> None:
    assert shown(edgert_run, str(GOLDEN / "mixtral.gguf"))["views"] == []
    assert edgert_run("convert", str(GOLDEN / "mixtral.gguf"), "out").returncode == 0
    values = shown(edgert_run, "out")
    assert [(row["format"], row["bits"]) for row in values["views"]] == [("c4@3", 3), ("c4@2", 2)]
    # Each plane is a bit a weight; what is not quantised is read whole.
    c4 = next(row["bytes"] for row in values["formats"] if row["format"] == "c4")
    others = values["weight_bytes"] - c4
    widths = [row["weight_bytes"] - others for row in values["views"]]
    assert widths[0] - widths[1] == c4 - widths[0] > 0
    assert "c4@2: " in edgert_run("show", "out").stdout


def test_a_model_that_cannot_run_is_shown_with_the_reason(edgert_run: Run, tmp_path: Path) -> None:
    matrix = ("f32", np.zeros((4, 8), np.float32), (4, 8))
    gguf_file(tmp_path / "m.gguf", {"general.architecture": "mamba", "mamba.context_length": 99}, {"ssm": matrix})
    values = shown(edgert_run, "m.gguf", "--tensors")
    assert (values["architecture"], values["can_run"], values["context"]) == ("mamba", False, 99)
    assert "general.architecture: found 'mamba'" in values["why_not"]
    assert values["tensors"][0] | {"offset": 0} == {
        "name": "ssm", "shape": [4, 8], "format": "f32", "outliers": 0, "bytes": 128, "file": "m.gguf", "offset": 0,
    }  # fmt: skip
    done = edgert_run("show", "m.gguf")
    assert done.returncode == 0
    assert re.search(r"^runs +no: .*mamba", done.stdout, re.MULTILINE)


def test_split_files(edgert_run: Run, tmp_path: Path) -> None:
    for number in (0, 1):
        metadata = {"split.no": number, "split.count": 2, "split.tensors.count": 2}
        first = {"general.architecture": "mamba"} if number == 0 else {}
        tensor = {f"t{number}": ("f32", np.zeros(8 + number, np.float32), (8 + number,))}
        gguf_file(tmp_path / f"m-0000{number + 1}-of-00002.gguf", first | metadata, tensor)
    values = shown(edgert_run, "m-00001-of-00002.gguf", "--tensors")
    assert [Path(file["path"]).name for file in values["files"]] == [f"m-0000{n}-of-00002.gguf" for n in (1, 2)]
    assert [tensor["file"] for tensor in values["tensors"]] == [f"m-0000{n}-of-00002.gguf" for n in (1, 2)]
    assert values["parameters"] == 8 + 9


def test_a_folder_with_one_gguf_file(edgert_run: Run, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    shutil.copy(GOLDEN / "llama.gguf", tmp_path / "folder" / "m.gguf")
    assert shown(edgert_run, "folder")["kind"] == "gguf"


def test_a_missing_model_is_one_line(edgert_run: Run) -> None:
    done = edgert_run("show", "nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: nowhere: found no such file or folder, expected a model; check the path\n"


def test_names_cannot_steer_the_terminal(edgert_run: Run, tmp_path: Path) -> None:
    evil = "a\x1b[2J\r\n\x9b31m\u202e\x07b"
    metadata = GGUF_METADATA | {
        "general.name": evil,
        "general.architecture": evil,
        "general.license": "x" * 5000,
        "tokenizer.ggml.model": evil,
        "tokenizer.ggml.tokens": ["a", evil],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.chat_template": evil,
    }
    gguf_file(tmp_path / "m.gguf", metadata, {evil: ("f32", np.zeros(8, np.float32), (8,))})
    for arguments in (["m.gguf", "--tensors"], ["m.gguf", "--json", "--tensors"]):
        done = edgert_run("show", *arguments)
        assert done.returncode == 0, done.stderr
        assert [c for c in done.stdout if not c.isprintable() and c != "\n"] == []
        assert len(done.stdout) < 6000 or "--json" in arguments
    assert "\\x1b[2J" in edgert_run("show", "m.gguf").stdout


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_lines_keep_to_the_width(edgert_run: Run, width: int) -> None:
    rows = report(shown(edgert_run, str(GOLDEN / "mixtral.gguf")))
    lines = lay_out(rows, width)
    assert max(map(len, lines)) <= width
    # Nothing is left out: the words are those of the layout without a width.
    assert "".join("".join(lines).split()) == "".join("".join(lay_out(rows, None)).split())


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("model.embed_tokens.weight", "embedding"),
        ("token_embd.weight", "embedding"),
        ("output.weight", "output"),
        ("lm_head.weight", "output"),
        ("output_norm.weight", "norms"),
        ("blk.0.attn_output.weight", "attention"),
        ("blk.0.attn_q_norm.weight", "norms"),
        ("model.layers.0.post_attention_layernorm.weight", "norms"),
        ("model.layers.0.self_attn.o_proj.weight", "attention"),
        ("blk.1.ffn_gate_exps.weight", "experts"),
        ("model.layers.0.mlp.experts.7.up_proj.weight", "experts"),
        ("model.layers.0.block_sparse_moe.experts.7.w1.weight", "experts"),
        ("blk.1.ffn_down.weight", "mlp"),
        ("model.layers.0.mlp.down_proj.weight", "mlp"),
        ("rope_freqs.weight", "other"),
    ],
)
def test_the_group_of_a_tensor(name: str, group: str) -> None:
    assert group_of(name) == group


def test_one_line() -> None:
    assert one_line("plain ä 模型") == "plain ä 模型"
    assert one_line("a\n\t\x1b\u202e\ud800") == "a  \\x1b\\u202e\\ud800"
    assert math.isfinite(len(one_line("".join(map(chr, range(0x3000))))))
