"""Outliers of a conversion: which weights they are, what a model with them computes, and files where they are wrong."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import edgert
from edgert.convert import convert
from edgert.errors import ConvertError, FileFormatError, UsageError
from edgert.files import TensorEntry, open_checkpoint
from edgert.loader import open_model
from edgert.quant import format as formats
from edgert.quant import outliers
from edgert.quant.container import ContainerTensor, ContainerWriter, plan_container
from edgert.quant.format import Quantized
from edgert.verify import verify

from .conftest import LLAMA, MOE, safetensors_file

TOKENS = [1, 17, 250, 3, 99, 42, 7, 7, 123]
NAME = "model.layers.0.mlp.up_proj.weight"


def logits(path: Path, tokens: list[int] = TOKENS, bits: int | None = None) -> np.ndarray:
    # Keys in f16 would turn a difference of one rounding into one of 2^-11 now and then.
    with edgert.load(path, threads=2, context=64, bits=bits, kv_format="f32") as llm:
        return np.array(llm.logits(tokens))


def stored(path: Path) -> tuple[TensorEntry, np.ndarray, list[np.ndarray]]:
    """Of `NAME`: the entry, the dense matrix and [starts, columns, values], by the text of docs/formats.md."""
    checkpoint = open_checkpoint(path)
    entry = checkpoint.tensors[NAME]
    data = checkpoint.files[entry.file].read_bytes()
    made = formats.get(entry.format)
    dense = made.dequantize(
        made.unpack([np.frombuffer(data, np.uint8, p.length, p.offset) for p in entry.parts], *entry.shape)
    )
    dtypes = ("<u4", "<u2", "<f2")
    sparse = [
        np.frombuffer(data[p.offset : p.offset + p.length], d) for p, d in zip(entry.outliers, dtypes, strict=False)
    ]
    return entry, dense, sparse


@pytest.mark.parametrize("target", ["p2", "c4", "ternary", "q4_0"])
def test_chosen_weights_are_exact_and_the_rest_loses_less(make_folder, tmp_path, target):
    config = LLAMA | {"intermediate_size": 192}
    source = make_folder(config)
    convert(source.path, tmp_path / "dense", quant=target)
    convert(source.path, tmp_path / "sparse", quant=target, outliers=0.02)
    w = source.weights[NAME].astype(np.float32)
    entry, dense, (starts, columns, found) = stored(tmp_path / "sparse")
    # 192 rows are 12 strips of 16 x 64 weights, each with 20.48 outliers, rounded.
    assert entry.num_outliers == len(found) == 12 * 20
    assert (starts[0], starts[-1], len(starts)) == (0, len(found), 193)
    assert np.array_equal(starts[::16], 20 * np.arange(13))
    whole = dense.copy()
    for row in range(192):
        of_row = slice(starts[row], starts[row + 1])
        assert np.all(np.diff(columns[of_row].astype(int)) > 0)
        lacking = w[row, columns[of_row]] - dense[row, columns[of_row]]
        assert np.array_equal(found[of_row], lacking.astype(np.float16))
        whole[row, columns[of_row]] += found[of_row].astype(np.float32)
    other, without, _ = stored(tmp_path / "dense")
    assert (other.outliers, other.num_outliers) == ((), 0)
    assert ((w - whole) ** 2).sum() < 0.95 * ((w - without) ** 2).sum()


def test_every_quantised_matrix_has_them_and_no_other(make_folder, tmp_path):
    convert(make_folder(MOE).path, tmp_path / "out", quant="c3", outliers=0.01)
    model = open_model(tmp_path / "out")
    for source in model.weights.values():
        is_quantised = source.entry.format == "c3"
        assert is_quantised == (source.cols > 0 and source.role != "router")
        assert (source.entry.num_outliers > 0) == is_quantised, source.name
    assert model.num_bytes == sum(entry.length for entry in model.checkpoint.tensors.values())


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_do_not_change_the_file(make_folder, tmp_path, threads, monkeypatch):
    monkeypatch.setattr("edgert.convert.pipeline._CHUNK_VALUES", 2048)
    source = make_folder()
    convert(source.path, tmp_path / "one", quant="c4", outliers=0.01, threads=1)
    convert(source.path, tmp_path / "many", quant="c4", outliers=0.01, threads=threads)
    one, many = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "many"))
    assert one == many


def rewritten(
    folder: Path, out: Path, change: Callable[[TensorEntry, list[np.ndarray]], tuple[str, list[np.ndarray], int]]
) -> Path:
    """The folder with what `change` makes of each packed tensor: (format, parts, number of outliers)."""
    checkpoint = open_checkpoint(folder)
    data = checkpoint.files[0].read_bytes()
    made, tensors = {}, []
    for name, entry in checkpoint.tensors.items():
        pieces = (*entry.parts, *entry.outliers) or (entry,)
        parts = [np.frombuffer(data, np.uint8, piece.length, piece.offset) for piece in pieces]
        kind, count = entry.format, 0
        if entry.parts:
            kind, parts, count = change(entry, parts)
        tensors.append(ContainerTensor(name, kind, entry.shape, "weight", count))
        made[name] = parts
    out.mkdir()
    with ContainerWriter(out / "model.safetensors", plan_container([[tensor] for tensor in tensors])) as writer:
        for name, parts in made.items():
            writer.write(name, parts)
        writer.finish()
    (out / "config.json").write_bytes((folder / "config.json").read_bytes())
    return out


@pytest.mark.parametrize("config", [LLAMA, MOE], ids=["llama", "moe"])
def test_a_model_of_outliers_alone_is_the_model_in_floats(make_folder, tmp_path, config):
    """Every scale is 0 and every weight an outlier: embedding, experts and head, in one step and token by token."""
    source = make_folder(config)
    convert(source.path, tmp_path / "p2", quant="p2")

    def all_outliers(entry, parts):
        w = source.weights[entry.name].astype(np.float32)
        found = outliers.take(w, np.ones(w.shape, np.bool_), np.zeros_like(w))
        zeros = [np.zeros(part.nbytes, np.uint8) for part in parts]
        sparse = [part.view(np.uint8) for part in (found.starts, found.columns, found.values)]
        return entry.format, zeros + sparse, w.size

    folder = rewritten(tmp_path / "p2", tmp_path / "out", all_outliers)
    for tokens in (TOKENS, TOKENS[:1], TOKENS * 3):
        expected = logits(source.path, tokens)
        assert np.abs(logits(folder, tokens) - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize(("target", "bits"), [("c4", 2), ("p4", 3)])
def test_a_view_keeps_them(make_folder, tmp_path, target, bits):
    convert(make_folder(MOE).path, tmp_path / "out", quant=target, outliers=0.02)

    def narrower(entry, parts):
        own = len(entry.parts)
        matrix = formats.get(target).unpack(parts[:own], *entry.shape)
        dropped = int(target[1]) - bits
        scale = matrix.scales[0] * np.float32(2**dropped if target[0] == "p" else 1)
        kind = f"{target[0]}{bits}"
        packed = formats.get(kind).pack(Quantized(matrix.codes >> dropped, (scale, *matrix.scales[1:])))
        return kind, packed + parts[own:], entry.num_outliers

    narrow = rewritten(tmp_path / "out", tmp_path / "narrow", narrower)
    assert np.array_equal(logits(tmp_path / "out", bits=bits), logits(narrow))
    assert open_model(tmp_path / "out", bits=bits).num_bytes == open_model(narrow).num_bytes


@pytest.mark.parametrize(
    ("quant", "share", "message"),
    [
        ("p2", 0.0, "found 0, expected more than 0 and at most 0.05"),
        ("p2", 0.051, "found 0.051, expected more than 0"),
        ("p2", float("nan"), "found nan, expected more than 0"),
        ("keep", 0.01, "found it with -q keep, expected a format that quantises"),
        ("f16", 0.01, "found it with -q f16, expected a format that quantises"),
    ],
)
def test_a_share_that_there_is_not_is_refused(make_folder, tmp_path, quant, share, message):
    with pytest.raises(UsageError, match=message):
        convert(make_folder().path, tmp_path / "out", quant=quant, outliers=share)


def test_an_outlier_beyond_f16_is_refused(make_folder, tmp_path):
    source = make_folder(LLAMA, "float32")
    source.weights[NAME][3, 5] = 1e6
    safetensors_file(source.path / "model.safetensors", source.weights)
    with pytest.raises(ConvertError, match=r"up_proj.*found an outlier of 1e\+06, expected at most 65504"):
        convert(source.path, tmp_path / "out", quant="p4", outliers=0.01)


# What is written into (starts, columns, values) of a matrix of 172 x 64; the message of a file where that is wrong.
BROKEN_PLACES = {
    "first start": (0, 0, struct.pack("<I", 1), "row 0: found the start 1, expected 0"),
    "last end": (0, 172 * 4, struct.pack("<I", 5), "row 171: found the end 5, expected"),
    "descending starts": (
        0,
        4 * 4,
        struct.pack("<I", 2**31),
        "row 3: found the start 6 and the end 2147483648, expected ascending ones up to 40",
    ),
    "column beyond": (1, 0, struct.pack("<H", 64), "row 0: found column 64, expected below 64"),
    "column twice": (1, 2, b"", "row 0: found column 0, expected ascending ones"),
}
BROKEN_VALUE = (2, 0, struct.pack("<H", 0x7C00), "found a value that is infinite or no number")


@pytest.fixture
def sparse_folder(make_folder, tmp_path) -> Path:
    """A p2 whose first rows of `NAME` have two outliers each, in columns 0 and 9."""
    convert(make_folder().path, tmp_path / "p2", quant="p2")

    def add(entry, parts):
        if entry.name != NAME:
            return entry.format, parts, 0
        starts = np.minimum(2 * np.arange(entry.shape[0] + 1, dtype=np.uint32), 40)
        columns, values = np.tile(np.array([0, 9], np.uint16), 20), np.full(40, 0.25, np.float16)
        return entry.format, [*parts, *(part.view(np.uint8) for part in (starts, columns, values))], 40

    return rewritten(tmp_path / "p2", tmp_path / "out", add)


def patch(folder: Path, part: int, place: int, content: bytes) -> None:
    entry = open_checkpoint(folder).tensors[NAME]
    with open(folder / "model.safetensors", "r+b") as file:
        file.seek(entry.outliers[part].offset + place)
        file.write(content or b"\0\0")


@pytest.mark.parametrize("name", [*BROKEN_PLACES, "value"])
def test_outliers_that_are_wrong_are_one_error(sparse_folder, name):
    assert not [finding for finding in verify(sparse_folder).findings if "up_proj" in finding.message]
    logits(sparse_folder)
    part, place, content, message = BROKEN_PLACES.get(name, BROKEN_VALUE)
    patch(sparse_folder, part, place, content)
    with pytest.raises(FileFormatError, match=f"{NAME}: outliers of .*{message}"):
        logits(sparse_folder)
    told = [finding.message for finding in verify(sparse_folder).findings if finding.level == "error"]
    message = "values that are infinite" if name == "value" else message
    assert any(message in text and NAME in text for text in told), told


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda parts: parts[:2], "found parts 'outlier_starts' of 692 bytes, 'outlier_columns' of 80 bytes, expected"),
        (lambda parts: (parts[0], parts[2], parts[1]), "expected 'outlier_starts' of 692 bytes, 'outlier_columns'"),
        (lambda parts: (replace(parts[0], length=688), *parts[1:]), "'outlier_starts' of 688 bytes, .* of 692 bytes"),
        (lambda parts: (*parts[:2], replace(parts[2], length=78)), "'outlier_values' of 78 bytes, .* of 80 bytes"),
        (
            lambda parts: (parts[0], *(replace(part, length=2 * 172 * 64 + 2) for part in parts[1:])),
            "found 11009 outliers, expected at most 172 x 64",
        ),
    ],
    ids=["a part is missing", "another order", "starts of other rows", "lengths differ", "more than weights"],
)
def test_parts_of_outliers_that_do_not_fit(sparse_folder, monkeypatch, change, message):
    from edgert.loader import model

    def changed(path):
        checkpoint = open_checkpoint(path)
        entry = checkpoint.tensors[NAME]
        tensors = checkpoint.tensors | {NAME: replace(entry, outliers=change(entry.outliers))}
        return replace(checkpoint, tensors=tensors)

    monkeypatch.setattr(model, "open_checkpoint", changed)
    with pytest.raises(FileFormatError, match=message):
        open_model(sparse_folder)


def test_columns_that_sixteen_bits_do_not_reach(tmp_path):
    """The loader and the core both refuse it; a conversion leaves such a matrix without outliers."""
    from edgert import _core

    lengths = [length for _, length in _core.part_bytes("p2", 16, 65600)]
    file = tmp_path / "parts"
    file.write_bytes(bytes(sum(lengths) + 72))
    store = _core.WeightStore()
    index = store.add_file(str(file))
    ranges = [(index, sum(lengths[:i]), length) for i, length in enumerate(lengths)]
    sparse = [(index, 0, 68), (index, 68, 2), (index, 70, 2)]
    with pytest.raises(_core.CoreError, match="found outliers in 65600 columns, expected at most 65536"):
        store.add("w", "p2", 16, 65600, ranges, is_packed=True, outliers=sparse)


@pytest.mark.parametrize(
    ("sparse", "message"),
    [
        ([(0, 0, 68), (0, 0, 2)], "found 2 parts of outliers, expected 3"),
        ([(0, 0, 64), (0, 0, 2), (0, 0, 2)], "found 64 bytes of outlier starts, expected 68"),
        ([(0, 0, 68), (0, 0, 3), (0, 0, 3)], "found 3 and 3 bytes of outlier columns and values"),
        ([(0, 0, 68), (0, 0, 2), (0, 0, 4)], "found 2 and 4 bytes of outlier columns and values"),
        ([(7, 0, 68), (0, 0, 2), (0, 0, 2)], "found an unknown file index"),
        ([(0, 0, 68), (0, 0, 2), (0, 2**40, 2)], "end|beyond|expected"),
    ],
)
def test_the_core_checks_what_it_is_given(tmp_path, sparse, message):
    from edgert import _core

    lengths = [length for _, length in _core.part_bytes("p2", 16, 64)]
    file = tmp_path / "parts"
    file.write_bytes(bytes(sum(lengths)))
    store = _core.WeightStore()
    index = store.add_file(str(file))
    ranges = [(index, sum(lengths[:i]), length) for i, length in enumerate(lengths)]
    with pytest.raises((_core.CoreError, IndexError), match=message):
        store.add("w", "p2", 16, 64, ranges, is_packed=True, outliers=sparse)
    with pytest.raises(_core.CoreError, match="found outliers in f16 row by row"):
        store.add("v", "f16", 4, 4, [(index, 0, 32)], outliers=sparse)
