"""Views at fewer bits: the numbers of a folder that was made from the leading parts alone, and nothing else is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import edgert
from edgert.convert import convert
from edgert.errors import UsageError
from edgert.files import open_checkpoint
from edgert.loader import open_model
from edgert.quant import format as formats
from edgert.quant.container import ContainerTensor, ContainerWriter, plan_container
from edgert.quant.format import Quantized

from .conftest import LLAMA, MOE

TOKENS = [1, 17, 250, 3, 99, 42, 7, 7, 123]


def logits(path: Path, bits: int | None = None) -> np.ndarray:
    with edgert.load(path, threads=1, context=64, bits=bits) as llm:
        return np.array(llm.logits(TOKENS))


def narrower(folder: Path, out: Path, bits: int) -> Path:
    """The folder in a format of `bits` bits, by the text of docs/formats.md: codes lose their last bits, the step of a
    grid grows by as many powers of two, a codebook takes the table of the width."""
    checkpoint = open_checkpoint(folder)
    data = checkpoint.files[0].read_bytes()
    made, tensors = {}, []
    for name, entry in checkpoint.tensors.items():
        pieces = entry.parts or (entry,)
        parts = [np.frombuffer(data, np.uint8, piece.length, piece.offset) for piece in pieces]
        kind = entry.format
        if entry.parts:
            matrix = formats.get(kind).unpack(parts, *entry.shape)
            dropped = int(kind[1]) - bits
            scale = matrix.scales[0] * np.float32(2**dropped if kind.startswith("p") else 1)
            kind = f"{kind[0]}{bits}"
            parts = formats.get(kind).pack(Quantized(matrix.codes >> dropped, (scale, *matrix.scales[1:])))
        tensors.append(ContainerTensor(name, kind, entry.shape, "weight"))
        made[name] = parts
    out.mkdir()
    with ContainerWriter(out / "model.safetensors", plan_container([[tensor] for tensor in tensors])) as writer:
        for name, parts in made.items():
            writer.write(name, parts)
        writer.finish()
    (out / "config.json").write_bytes((folder / "config.json").read_bytes())
    return out


@pytest.mark.parametrize(
    ("target", "bits"), [("p4", 2), ("p4", 3), ("p7", 2), ("p7", 5), ("c4", 2), ("c4", 3), ("c3", 2)]
)
def test_a_view_is_the_narrower_model(make_folder, tmp_path, target, bits):
    convert(make_folder(MOE).path, tmp_path / "out", quant=target)
    expected = logits(narrower(tmp_path / "out", tmp_path / "narrow", bits))
    assert np.array_equal(logits(tmp_path / "out", bits), expected)
    assert not np.array_equal(logits(tmp_path / "out"), expected)


def test_a_view_reads_what_it_needs(make_folder, tmp_path):
    """Of a c4 at 2 bits 2.25 of 4.25 bits, and of norms and routers all; its tensors are named c4@2."""
    convert(make_folder(MOE).path, tmp_path / "out")
    whole, view = open_model(tmp_path / "out"), open_model(tmp_path / "out", bits=2)
    name = "model.layers.0.self_attn.q_proj.weight"
    assert (whole.weights[name].format_name, view.weights[name].format_name) == ("c4", "c4@2")
    assert [length for _, _, length in view.weights[name].ranges()] == list(
        formats.part_bytes(formats.get("c2").spec, *view.weights[name].entry.shape)
    )
    router = "model.layers.0.mlp.gate.weight"
    assert view.weights[router] == whole.weights[router]
    assert 0.5 < view.num_bytes / whole.num_bytes < 0.6
    assert open_model(tmp_path / "out", bits=4).weights == whole.weights


@pytest.mark.parametrize(
    ("target", "bits", "message"),
    [
        ("c3", 4, "found 4, expected at most the 3 that are stored"),
        ("p2", 3, "found 3, expected at most the 2 that are stored"),
        ("p8", 2, "found weights in p8, expected p2 to p7 or c2 to c4"),
        ("p1", 2, "found weights in p1, expected p2 to p7 or c2 to c4"),
        ("keep", 2, "found weights in f16, expected p2 to p7 or c2 to c4"),
        ("c4", 1, "found 1, expected 2 to 7"),
        ("c4", 8, "found 8, expected 2 to 7"),
        ("c4", True, "found True, expected 2 to 7"),
    ],
)
def test_a_width_that_there_is_not_is_an_error(make_folder, tmp_path, target, bits, message):
    convert(make_folder(LLAMA).path, tmp_path / "out", quant=target)
    with pytest.raises(UsageError, match=message):
        logits(tmp_path / "out", bits)


@pytest.mark.parametrize(("kind", "exponent"), [("p2", -1), ("p2", 6), ("q8_0", 1)])
def test_a_scale_exponent_that_no_view_has_is_refused(tmp_path, kind, exponent):
    from edgert import _core

    lengths = [length for _, length in _core.part_bytes(kind, 16, 64)]
    file = tmp_path / "parts"
    file.write_bytes(bytes(sum(lengths)))
    store = _core.WeightStore()
    index = store.add_file(str(file))
    ranges = [(index, sum(lengths[:i]), length) for i, length in enumerate(lengths)]
    with pytest.raises(_core.CoreError, match="scale exponent"):
        store.add("w", kind, 16, 64, ranges, is_packed=True, scale_exponent=exponent)
