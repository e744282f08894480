"""Matrices that lie neuron by neuron: what a conversion writes, what the loader and the core make of it and refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgert import _core
from edgert.convert import convert
from edgert.errors import FileFormatError
from edgert.files import open_checkpoint
from edgert.loader import load_weights, open_model
from edgert.quant import format as formats
from edgert.quant import neurons
from edgert.verify import verify

from .conftest import LLAMA, write_folder

# Rows and columns that fill no strip and no group.
ARCEE = LLAMA | {
    "architectures": ["ArceeForCausalLM"], "model_type": "arcee", "hidden_act": "relu2", "hidden_size": 72,
    "head_dim": 18, "intermediate_size": 172,
}  # fmt: skip
DOWN = "model.layers.1.mlp.down_proj.weight"


@pytest.fixture
def arcee(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "arcee", ARCEE, "float16").path


def part(folder: Path, name: str, index: int) -> np.ndarray:
    entry = open_checkpoint(folder).tensors[name]
    data = (folder / "model.safetensors").read_bytes()
    return np.frombuffer(data, np.uint8, entry.parts[index].length, entry.parts[index].offset)


@pytest.mark.parametrize("target", [f"p{bits}" for bits in range(1, 9)] + ["c2", "c3", "c4", "q8_0", "ternary"])
def test_what_lies_behind_squared_relu(arcee: Path, tmp_path: Path, target: str) -> None:
    convert(arcee, tmp_path / "out", quant=target)
    tensors = open_checkpoint(tmp_path / "out").tensors
    for name, entry in tensors.items():
        has_records = entry.parts and entry.parts[-1].name == neurons.PART_NAME
        assert bool(has_records) == (".mlp.down_proj" in name and target not in ("p1", "q8_0", "ternary")), name
        if has_records:
            assert entry.parts[-1].offset % 4096 == 0
    assert verify(tmp_path / "out").error is None


@pytest.mark.parametrize("target", ["p2", "p4", "p5", "p7", "p8", "c3", "c4"])
@pytest.mark.parametrize("threads", [1, 3])
def test_in_memory_it_is_what_it_was(arcee: Path, tmp_path: Path, monkeypatch, target: str, threads: int) -> None:
    """Byte by byte: the parts of a conversion that knows nothing of neurons."""
    from edgert.convert import pipeline, plan

    monkeypatch.setattr(pipeline, "_CHUNK_VALUES", 172 * 16)  # several pieces of rows
    convert(arcee, tmp_path / "out", quant=target, threads=threads)
    monkeypatch.setattr(plan, "_behind_zeros", lambda model: frozenset())
    convert(arcee, tmp_path / "plain", quant=target, threads=threads)
    model = open_model(tmp_path / "out")
    store = _core.WeightStore()
    load_weights(model, store)
    for index, spec in enumerate(formats.get(target).spec.parts):
        expected = part(tmp_path / "plain", DOWN, index)
        assert np.array_equal(store.part(DOWN, index), expected), spec.name
    bits = neurons.code_bits(target)
    codes = neurons.unpack(part(tmp_path / "out", DOWN, -1), bits, 72, 172)
    plain = [part(tmp_path / "plain", DOWN, i) for i in range(len(formats.get(target).spec.parts))]
    assert np.array_equal(codes, formats.get(target).unpack(plain, 72, 172).codes.view(np.uint8))


@pytest.mark.parametrize(("target", "bits"), [("c4", 2), ("c4", 3), ("p5", 2), ("p7", 6)])
def test_a_view_drops_bits(arcee: Path, tmp_path: Path, monkeypatch, target: str, bits: int) -> None:
    from edgert.convert import plan

    convert(arcee, tmp_path / "out", quant=target)
    monkeypatch.setattr(plan, "_behind_zeros", lambda model: frozenset())
    convert(arcee, tmp_path / "plain", quant=target)
    stores = []
    for name in ("out", "plain"):
        model = open_model(tmp_path / name, bits=bits)
        stores.append(_core.WeightStore())
        load_weights(model, stores[-1])
    for index in range(len(formats.get(f"{target[0]}{bits}").spec.parts)):
        assert np.array_equal(stores[0].part(DOWN, index), stores[1].part(DOWN, index)), index


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p[-1:], "found parts 'neuron' of 6880 bytes, expected 'scale' of 480 bytes, 'neuron' of 6880 bytes"),
        (lambda p: (p[1], p[0]), "found parts 'neuron' of 6880 bytes, 'scale'"),
        (lambda p: (p[0], replace(p[1], length=6879)), "'neuron' of 6879 bytes, expected .*'neuron' of 6880 bytes"),
        (lambda p: (*p, p[1]), "found parts 'scale' of 480 bytes, 'neuron' of 6880 bytes, 'neuron'"),
        (lambda p: (p[0], replace(p[1], name="field")), "expected 'scale' of 480 bytes, 'field'"),
    ],
    ids=["no scale", "another order", "a byte is missing", "twice", "another name"],
)
def test_parts_that_do_not_fit(arcee: Path, tmp_path: Path, monkeypatch, change, message: str) -> None:
    from edgert.loader import model

    convert(arcee, tmp_path / "out", quant="p4")

    def changed(path):
        checkpoint = open_checkpoint(path)
        entry = checkpoint.tensors[DOWN]
        return replace(checkpoint, tensors=checkpoint.tensors | {DOWN: replace(entry, parts=change(entry.parts))})

    monkeypatch.setattr(model, "open_checkpoint", changed)
    with pytest.raises(FileFormatError, match=message):
        open_model(tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "bits", "parts", "message"),
    [
        ("p4", 4, [32, 64 * 8 - 1], "found 511 bytes, expected 512"),
        ("p4", 4, [32], "found 1 parts, expected 2"),
        ("p4", 4, [32, 256, 128, 128], "found 4 parts, expected 2"),
        ("p4", 3, [32, 64 * 6], "found neurons of 3 bits in p4"),
        ("p4", 8, [32, 64 * 16], "found neurons of 8 bits in p4"),
        ("p8", 7, [32, 64 * 14], "found neurons of 7 bits in p8"),
        ("p4", -1, [32, 64], "found neurons of -1 bits in p4"),
        ("p1", 1, [32, 64 * 2], "found neurons of 1 bits in p1"),
        ("q8_0", 8, [64, 64 * 16], "found neurons of 8 bits in q8_0"),
        ("ternary", 2, [32, 64 * 4], "found neurons of 2 bits in ternary"),
        ("f16", 4, [2048], "found neurons of 4 bits in f16"),
    ],
)
def test_the_core_checks_what_it_is_given(tmp_path: Path, name: str, bits: int, parts: list, message: str) -> None:
    file = tmp_path / "parts"
    file.write_bytes(bytes(1 << 16))
    store = _core.WeightStore()
    index = store.add_file(str(file))
    ranges = [(index, 4096 * i, length) for i, length in enumerate(parts)]
    with pytest.raises(_core.CoreError, match=message):
        store.add("w", name, 16, 64, ranges, is_packed=True, neuron_bits=bits)
    with pytest.raises(_core.CoreError, match="found neurons of 4 bits in q8_0"):
        store.add("v", "q8_0", 16, 64, [(index, 0, 16 * 68)], neuron_bits=4)


def test_it_is_streamed_as_it_lies(tmp_path: Path) -> None:
    file = tmp_path / "parts"
    file.write_bytes(bytes(1 << 16))
    for kind, message in (("cuts", "expected a matrix that lies row by row"), ("neurons", "expected one that lies")):
        store = _core.WeightStore()
        index = store.add_file(str(file))
        lengths = [length for _, length in _core.part_bytes("p2", 16, 64)]
        store.add("records", "p2", 16, 64, [(index, 0, 32), (index, 4096, 64 * 4)], is_packed=True, neuron_bits=2)
        store.add("rows", "p2", 16, 64, [(index, 4096 * i, n) for i, n in enumerate(lengths)], is_packed=True)
        cuts = [("records", [0])] if kind == "cuts" else []
        names = ["rows"] if kind == "neurons" else []
        with pytest.raises(_core.CoreError, match=message):
            store.set_stream(
                cuts=cuts, lock_order=[], lookups=[], pool_bytes=0, ring_bytes=0, neurons=names, neuron_bytes=1 << 20
            )
