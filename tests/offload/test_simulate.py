"""The time line of the simulator against sums done by hand, traces on disk, and routings that a real model records."""

import io
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from core.moe_model import EPS, EXPERTS, HIDDEN, LAYERS, TOP_K, write_moe

import edgert
from edgert.errors import FileFormatError, ModelNotFoundError, UsageError
from edgert.offload.expert_trace import ExpertTrace, check_routed, collect, half_precision, load, save
from edgert.offload.simulate import Device, default_device, halves, simulate

from .routings import random_routing


def trace_of(experts: np.ndarray, num_experts: int, expert_bytes: int = 100) -> ExpertTrace:
    tokens, layers, top_k = experts.shape
    return ExpertTrace(
        token_ids=np.arange(tokens, dtype=np.int32),
        text_starts=np.zeros(1, np.int64),
        experts=experts.astype(np.int16),
        weights=np.full(experts.shape, 1 / top_k, np.float32),
        gate_logits=None,
        expert_bytes=np.full((layers, num_experts), expert_bytes, np.int64),
    )


DEVICE = Device(disk_bytes_per_s=100.0, layer_s=1.0, token_s=0.5)


def test_without_prediction_every_read_is_waited_for() -> None:
    """Reads one after the other: the time is that of compute and that of the bytes."""
    experts, _ = random_routing(1, 300, 4, 12, 2)
    trace = trace_of(experts, 12)
    run = simulate(trace, policy="lru", predictor="none", capacity_bytes=1500, device=DEVICE)
    misses = round((1 - run.hit_rate) * experts.size)
    assert run.read_bytes == 100 * misses > 0
    assert run.compute_s == pytest.approx(300 * (4 * 1.0 + 0.5))
    assert run.stall_s == pytest.approx(misses * 1.0)
    assert run.elapsed_s == pytest.approx(run.compute_s + run.stall_s)
    assert (run.late_rate, run.wasted_bytes) == (0.0, 0)


def test_a_right_prediction_is_read_while_the_layer_before_computes() -> None:
    """Two layers of one expert each, never the same twice. Half a layer lies before its router.

    Layer 0 is predicted when the token begins, 0.5 s before it routes: 0.5 s of its read are waited for. Layer 1 is
    predicted when layer 0 routes. The disk is free 0.5 s later, the read takes 1 s, and layer 1 routes 1 s after layer
    0 began to compute: nothing is waited for.
    """
    experts = np.arange(20).reshape(10, 2, 1) % 19
    trace = trace_of(experts, 20)
    device = Device(disk_bytes_per_s=100.0, layer_s=1.0)
    run = simulate(trace, policy="lru", predictor="lookahead", capacity_bytes=400, device=device)
    assert run.stall_s == pytest.approx(10 * 0.5)
    assert run.hit_rate == pytest.approx(0.5)
    assert run.late_rate == pytest.approx(0.5)
    assert run.recall == (1.0, 1.0)
    # A disk that is ten times as fast is never waited for, one without prediction is.
    fast = Device(disk_bytes_per_s=1000.0, layer_s=1.0)
    assert simulate(trace, policy="lru", predictor="lookahead", capacity_bytes=400, device=fast).stall_s == 0
    alone = simulate(trace, policy="lru", predictor="none", capacity_bytes=400, device=fast)
    assert alone.stall_s == pytest.approx(20 * 0.1)


def test_a_wrong_prediction_stands_in_the_way_only_once_its_read_has_begun() -> None:
    """One token of two layers; reads and layers take 1 s. The gate of layer 1 says 0, 1, 2, and its router 3.

    0.5 s: layer 0 routes and waits for its expert, 1 s. 1.5 s: the disk turns to expert 0. 2.5 s: layer 1 routes, just
    as the disk turns to expert 1, which nobody wants any more; expert 2 is cancelled, expert 3 read from 3.5 to 4.5 s.
    """
    trace = trace_of(np.array([[[0], [3]]]), 8)
    gates = np.zeros((1, 2, 8), np.float16)
    gates[0, 1, :3] = (9.0, 8.9, 8.8)
    trace = replace(trace, gate_logits=gates)
    device = Device(disk_bytes_per_s=100.0, layer_s=1.0)
    options = {"prefetch_bytes": 300, "min_probability": 0.01}
    run = simulate(
        trace, policy="lru", predictor="cross_layer_gate", capacity_bytes=800, device=device, options=options
    )
    assert run.stall_s == pytest.approx(1.0 + 2.0)
    assert run.read_bytes == 400
    assert run.hit_rate == run.late_rate == 0


def test_halves_and_parts() -> None:
    trace = trace_of(random_routing(2, 11, 2, 6, 2)[0], 6)
    first, second = halves(trace)
    assert (first.num_tokens, second.num_tokens) == (5, 6)
    assert np.array_equal(np.concatenate([first.experts, second.experts]), trace.experts)
    assert second.token_ids[0] == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"policy": "x"}, "policy"), ({"predictor": "x"}, "predictor"), ({"capacity_bytes": 1}, "capacity_bytes")],
)
def test_what_cannot_be_simulated_is_an_error(changes: dict, message: str) -> None:
    known = {"policy": "lru", "predictor": "none", "capacity_bytes": 500, "device": DEVICE} | changes
    with pytest.raises(UsageError, match=message):
        simulate(trace_of(random_routing(2, 11, 2, 6, 2)[0], 6), **known)


def example(tmp_path: Path, *, with_gates: bool = True) -> tuple[ExpertTrace, Path]:
    experts, weights = random_routing(3, 20, 3, 8, 2)
    rng = np.random.default_rng(3)
    trace = ExpertTrace(
        token_ids=rng.integers(0, 100, 20).astype(np.int32),
        text_starts=np.array([0, 7], np.int64),
        experts=experts,
        weights=weights,
        gate_logits=rng.normal(size=(20, 3, 8)).astype(np.float16) if with_gates else None,
        expert_bytes=rng.integers(1, 1000, (3, 8)),
    )
    save(trace, tmp_path / "trace.npz")
    return trace, tmp_path / "trace.npz"


@pytest.mark.parametrize("with_gates", [False, True])
def test_a_trace_comes_back_as_it_was(tmp_path: Path, with_gates: bool) -> None:
    trace, path = example(tmp_path, with_gates=with_gates)
    again = load(path)
    for name in ("token_ids", "text_starts", "experts", "weights", "gate_logits", "expert_bytes"):
        saved, loaded = getattr(trace, name), getattr(again, name)
        assert saved is loaded is None or (saved.dtype == loaded.dtype and np.array_equal(saved, loaded))
    assert [file.name for file in tmp_path.iterdir()] == ["trace.npz"]


def changed(**arrays: object) -> Callable[[Path], None]:
    """Rewrites the file with arrays replaced; None takes one out."""

    def change(path: Path) -> None:
        with np.load(path) as archive:
            kept = {name: archive[name] for name in archive.files} | arrays
        np.savez(path, **{name: array for name, array in kept.items() if array is not None})  # type: ignore[arg-type]

    return change


def compressed(path: Path) -> None:
    with np.load(path) as archive:
        np.savez_compressed(path, **{name: archive[name] for name in archive.files})


def with_member(name: str, content: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            members = {one: archive.read(one) for one in archive.namelist()}
        with zipfile.ZipFile(path, "w") as archive:
            for one, bytes_of in (members | {name: content}).items():
                archive.writestr(one, bytes_of)

    return change


def npy(header: str, content: bytes = b"") -> bytes:
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content


def pickled() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([{}], dtype=object), allow_pickle=True)
    return file.getvalue()


EXPERTS_ = random_routing(3, 20, 3, 8, 2)[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_bytes(b"no zip at all"), "found no routing trace"),
        (lambda path: path.write_bytes(path.read_bytes()[:-30]), "found no routing trace"),
        (changed(experts=None), "found no experts"),
        (changed(version=np.int32(2)), "found version 2, expected 1"),
        (compressed, "compressed or encrypted"),
        (changed(experts=EXPERTS_.astype(np.int64)), "experts: found int64"),
        (changed(experts=EXPERTS_[0]), r"experts: found int16 with shape \[3, 2\]"),
        (changed(experts=np.full((20, 3, 2), -1, np.int16)), "found -1 to -1, expected 0 to 7"),
        (changed(experts=np.full((20, 3, 2), 9, np.int16)), "found 9 to 9, expected 0 to 7"),
        (changed(experts=EXPERTS_[:, :, ::-1].copy()), "a row that does not ascend"),
        (changed(experts=EXPERTS_[:, :2].copy()), "weights: found shape"),
        (changed(experts=EXPERTS_[:0]), "found no tokens"),
        (changed(weights=np.full((20, 3, 2), np.nan, np.float32)), "weights: found a value that is not finite"),
        (changed(gate_logits=np.zeros((20, 3, 7), np.float16)), "gate_logits: found shape"),
        (changed(token_ids=np.zeros(19, np.int32)), "token_ids: found shape"),
        (changed(text_starts=np.array([0, 20])), "text_starts: found starts that do not ascend"),
        (changed(text_starts=np.array([7, 7])), "text_starts: found starts that do not ascend"),
        (changed(expert_bytes=np.zeros((3, 8), np.int64)), "expert_bytes: found 0 to 0"),
        (changed(expert_bytes=np.full((3, 8), 1 << 62)), "expert_bytes: found"),
        (with_member("experts.npy", pickled()), "experts: found object"),
        (with_member("experts.npy", b"\x93NUMPY\x09\x00"), "damaged header of experts"),
        (with_member("experts.npy", npy("{'descr': '<i2', 'fortran_order': False, 'shape': (1, 1, 9999999999999)}")),
         "experts: found 0 bytes, expected 19999999999998"),
        (with_member("experts.npy", npy("__import__('os').abort()")), "damaged header of experts"),
    ],
)  # fmt: skip
def test_a_hostile_trace_is_one_clear_error(tmp_path: Path, change: Callable[[Path], None], message: str) -> None:
    _, path = example(tmp_path)
    change(path)
    with pytest.raises(FileFormatError, match=message) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))


def test_no_trace_at_all(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="edgert moe profile"):
        load(tmp_path / "trace.npz")


def test_a_model_records_what_its_routers_choose(tmp_path: Path) -> None:
    """Where attention and experts add nothing, every router sees the embedding, and numpy can route it too."""
    folder, weights = write_moe(tmp_path / "model", seed=5, is_transparent=True)
    tokens = np.random.default_rng(5).integers(0, 1000, 70).astype(np.int32)
    with edgert.load(folder, batch_tokens=32, kv_format="f32") as llm:
        texts = []
        for piece in (tokens[:40], tokens[40:]):
            llm.start_routing_trace()
            llm.logits(piece)
            layers = llm.stop_routing_trace()
            check_routed(layers, len(piece), "model")
            texts.append((piece, half_precision(layers)))
        trace = collect(texts, llm.expert_bytes)
    assert trace.text_starts.tolist() == [0, 40]
    assert np.array_equal(trace.token_ids, tokens)
    assert (trace.expert_bytes == 3 * 4 * HIDDEN * 32).all() and trace.expert_bytes.shape == (LAYERS, EXPERTS)
    embedding = weights["model.embed_tokens.weight"][tokens].astype(np.float64)
    normed = embedding / np.sqrt((embedding**2).mean(axis=1, keepdims=True) + EPS)
    for layer in range(LAYERS):
        p = f"model.layers.{layer}"
        router = weights[f"{p}.mlp.gate.weight"].astype(np.float64)
        logits = normed * weights[f"{p}.post_attention_layernorm.weight"] @ router.T
        expected = np.sort(np.argsort(-logits, axis=1)[:, :TOP_K], axis=1)
        assert np.array_equal(trace.experts[:, layer], expected), layer
        chosen = np.exp(np.take_along_axis(logits, expected, 1))
        assert trace.weights[:, layer] == pytest.approx(chosen / chosen.sum(axis=1, keepdims=True), rel=1e-3)
        assert trace.gate_logits is not None
        before = f"model.layers.{layer - 1}.post_attention_layernorm.weight"
        early = normed * weights[before] @ router.T if layer else np.zeros_like(logits)
        assert trace.gate_logits[:, layer] == pytest.approx(early, rel=5e-3, abs=5e-3)


def test_the_default_device_reads_an_expert_while_a_layer_computes() -> None:
    trace = trace_of(random_routing(2, 11, 2, 6, 2)[0], 6, expert_bytes=5000)
    device = default_device(trace, 0.01)
    assert 5000 / device.disk_bytes_per_s == pytest.approx(device.layer_s)
