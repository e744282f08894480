"""Synthesised models: both kinds of file open, and their weights have the deviation of trained ones."""

from pathlib import Path

import numpy as np
import pytest
from benchmark_scripts import script

import edgert
from edgert.quant import format as formats

gguf = pytest.importorskip("gguf")
for name in ("gguf_architectures", "gguf_vocabulary"):  # which synth imports when it writes a GGUF file
    script(name)
synth, random_weights = script("synth"), script("_random_weights")
SHAPES, WEIGHT_DEVIATION = script("_shapes").SHAPES, random_weights.WEIGHT_DEVIATION

SMALL = SHAPES["llama-1b"] | {
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 1, "vocab_size": 320, "max_position_embeddings": 64,
}  # fmt: skip
EXPERTS = SHAPES["moe-2l"] | {
    "hidden_size": 256, "moe_intermediate_size": 256, "num_experts": 4, "num_experts_per_tok": 2, "vocab_size": 320,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64,
}  # fmt: skip


@pytest.mark.parametrize("kind", random_weights.BLOCK_FORMATS)
def test_random_blocks_have_the_deviation_of_weights(kind: str) -> None:
    values = gguf.quants.dequantize(random_weights.block_rows(kind, 512), gguf.GGMLQuantizationType[kind.upper()])
    assert np.isfinite(values).all()
    assert abs(values.mean()) < 0.1 * WEIGHT_DEVIATION + 0.001
    # The powers of two that are mxfp4's scales do not come nearer.
    assert 0.9 < values.std() / WEIGHT_DEVIATION < (2 if kind == "mxfp4" else 1.1)


@pytest.mark.parametrize("kind", ["q4_0_m", "q4_k_m", "p4"])
def test_tokens_of_a_mixture_use_all_experts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    routed = {"num_hidden_layers": 4, "num_experts": 32, "num_experts_per_tok": 4, "hidden_size": 512}
    monkeypatch.setitem(SHAPES, "routed", EXPERTS | routed)
    path = tmp_path / ("model" if kind == "p4" else "model.gguf")
    synth.write("routed", path, kind)
    with edgert.load(path, threads=1, context=64) as llm:
        llm.start_routing_trace()
        llm.logits(list(range(10, 74)))
        layers = llm.stop_routing_trace()
    assert len(layers) == 4
    for experts, *_ in layers:
        # Of 64 x 4 choices none would be left out as a rule, and each come 8 times.
        counts = np.bincount(np.asarray(experts).ravel(), minlength=32)
        assert np.count_nonzero(counts) >= 26
        assert counts.max() <= 32


@pytest.mark.parametrize("kind", [name for name in formats.names() if name in synth.KINDS and name != "f32"])
def test_repeated_strips_are_the_matrix(kind: str) -> None:
    rows, cols = 272, 256
    parts = synth.RandomWeights(1).parts(kind, rows, cols)
    assert [part.nbytes for part in parts] == list(formats.part_bytes(formats.get(kind).spec, rows, cols))
    values = formats.get(kind).dequantize(formats.get(kind).unpack(parts, rows, cols))
    assert 0.75 < values.std() / WEIGHT_DEVIATION < 2  # of one bit: the mean magnitude, 0.8
    assert (values[:16] == values[256:]).all()
    assert random_weights.pool_parts(kind, cols) is random_weights.pool_parts(kind, cols), "made once"


@pytest.mark.parametrize(("shape", "kind"), [(SMALL, "q4_k_m"), (SMALL, "q2_k_m"), (EXPERTS, "q4_0_m")])
def test_both_kinds_of_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: dict[str, object], kind: str
) -> None:
    monkeypatch.setitem(SHAPES, "small", shape)
    synth.write("small", tmp_path / "small.gguf", kind)
    synth.write("small", tmp_path / "small", kind)
    rows = []
    for name in ("small.gguf", "small"):
        with edgert.load(tmp_path / name, threads=1, context=32) as llm:
            assert llm.vocab_size == 320
            rows.append(llm.logits([5, 6, 7]))
    assert np.isfinite(rows).all()
    assert min(np.std(row) for row in rows) > 0.1
