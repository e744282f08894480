"""A disk that misbehaves under a model that runs: one clear error or the right answer, and the next step is right."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest
from seeds import draw_rng

import edgert
from edgert import _core
from edgert.errors import EdgertError
from edgert.loader import Model, open_model

from .streamed_models import DENSE, MIXTURES, TOP_K, Models
from .streamed_runs import (
    Plan,
    Reference,
    core_span,
    limits,
    make_reference,
    mixtures,
    open_runtime,
    placed,
    play,
)

KINDS = [("dense", "q4_k"), ("dense", "gguf q4_0"), ("dense", "arcee c4"), ("mixture", "c4"), ("mixture", "gguf q4_0")]
STEP = slice(0, 40)


@pytest.fixture(scope="module")
def references(models: Models) -> dict[tuple[str, str], Reference]:
    return {(kind, name): make_reference(getattr(models, kind)(name), (60, 20)) for kind, name in KINDS}


def small_plan(model: Model) -> Plan:
    """Everything is read again and again."""
    return placed(model, limits(model)[0])


def is_right(runtime: _core.Runtime, reference: Reference) -> bool:
    sequence = runtime.open_sequence()
    logits = np.array(runtime.step([core_span(sequence, reference.tokens[0][STEP])]))
    runtime.release(sequence)
    return reference.holds(0, 0, STEP.stop, "last", logits)


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_short_and_reversed_reads(models, references, kind, name) -> None:
    rng = draw_rng()
    model = getattr(models, kind)(name)
    # All may fall on one read, which is given up after eight tries.
    for num_short, short_bytes in ((3, 1), (3, 511), (7, 4096), (7, 60_000), (5, 1 << 30)):
        faults = _core.Faults(num_short=num_short, short_bytes=short_bytes, is_reversed=bool(rng.random() < 0.5))
        runtime, _ = open_runtime(model, small_plan(model), faults=faults)
        play(runtime, references[kind, name], rng)


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_one_failed_read_fails_one_step(models, references, kind, name) -> None:
    rng = draw_rng()
    model, reference = getattr(models, kind)(name), references[kind, name]
    for k in (0, 1, *(int(k) for k in rng.integers(2, 60, 3))):
        faults = _core.Faults(fail_at=k)
        runtime, _ = open_runtime(model, small_plan(model), faults=faults)
        errors = []
        for _ in range(6):
            try:
                assert is_right(runtime, reference), k
            except OSError as error:
                errors.append(str(error))
        assert len(errors) == 1, (k, errors)
        assert errors[0] == f"{model.checkpoint.real_files[0]}: {os.strerror(5)}"


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_a_stalled_read_takes_its_time(models, references, kind, name) -> None:
    model = getattr(models, kind)(name)
    runtime, _ = open_runtime(model, small_plan(model), faults=_core.Faults(stall_at=2, stall_s=2.0))
    started_s = time.perf_counter()
    for _ in range(2):
        assert is_right(runtime, references[kind, name])
    assert 1.9 < time.perf_counter() - started_s < 4


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_a_file_that_becomes_shorter(models, references, kind, name, tmp_path) -> None:
    model, path = copied(models, kind, name, tmp_path)
    runtime, _ = open_runtime(model, small_plan(model))
    assert is_right(runtime, references[kind, name])
    content = path.read_bytes()
    os.truncate(path, 4096)
    # What was read ahead is right still; the next step needs more.
    with pytest.raises(OSError, match=r"model\.(safetensors|gguf): became shorter while it was read"):
        for _ in range(2):
            is_right(runtime, references[kind, name])
    with path.open("r+b") as file:
        file.write(content)
    # Between the steps a read failed, perhaps.
    for _ in range(3):
        try:
            assert is_right(runtime, references[kind, name])
            break
        except OSError:
            continue
    else:
        pytest.fail("the step fails although the file is whole again")


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_a_file_that_is_replaced(models, references, kind, name, tmp_path) -> None:
    model, path = copied(models, kind, name, tmp_path)
    runtime, _ = open_runtime(model, small_plan(model))
    assert is_right(runtime, references[kind, name])
    other = tmp_path / "other"
    other.write_bytes(os.urandom(path.stat().st_size // 2))
    other.rename(path)
    play(runtime, references[kind, name], draw_rng())


@pytest.mark.parametrize("kept", [False, True])
def test_numbers_that_become_wrong(models, references, tmp_path, kept) -> None:
    """q4_k has scales of six bits; kernels rely on it."""
    model, path = copied(models, "dense", "q4_k", tmp_path)
    name = "model.layers.1.mlp.up_proj.weight"
    source = model.weights[name]
    plan = Plan(
        cuts=((name, [0, 8, 20]), ("model.layers.1.mlp.down_proj.weight", [0])),
        lock_order=((0, 1),) if kept else (),
        pool_bytes=source.num_bytes * 3,
        ring_bytes=source.num_bytes * 2,
    )
    parts = dict(zip((part.name for part in source.entry.parts), source.entry.parts, strict=True))
    offset = parts["subscale"].offset + parts["subscale"].length * 10 // 32
    runtime, _ = open_runtime(model, plan)
    if not kept:
        assert is_right(runtime, references["dense", "q4_k"])
    right = path.read_bytes()[offset : offset + 1]
    overwrite(path, offset, b"\xff")
    with pytest.raises(_core.CoreError, match=f"{name}: found 255 in its subscale, expected 0 to 63"):
        for _ in range(2):
            is_right(runtime, references["dense", "q4_k"])
    overwrite(path, offset, right)
    assert any(_try(runtime, references["dense", "q4_k"]) for _ in range(2))


def test_a_row_whose_numbers_become_wrong(models, references, tmp_path) -> None:
    """Rows are looked up on any thread: what is wrong with one ends the step, not the process."""
    model, path = copied(models, "dense", "q4_k", tmp_path)
    source = model.weights["model.embed_tokens.weight"]
    runtime, _ = open_runtime(model, Plan(lookups=(source.name,)))
    assert is_right(runtime, references["dense", "q4_k"])
    part = next(part for part in source.entry.parts if part.name == "subscale")
    right = path.read_bytes()[part.offset : part.offset + part.length]
    overwrite(path, part.offset, b"\xff" * part.length)
    with pytest.raises(_core.CoreError, match=f"{source.name}: found 255 in its subscale, expected 0 to 63"):
        is_right(runtime, references["dense", "q4_k"])
    overwrite(path, part.offset, right)
    assert is_right(runtime, references["dense", "q4_k"])


def test_experts_whose_numbers_become_wrong(tmp_path) -> None:
    from .streamed_models import MIXTURE, converted

    config = MIXTURE | {"hidden_size": 256, "moe_intermediate_size": 256, "num_hidden_layers": 1}
    path = converted(config, "q4_k")(tmp_path)
    model = open_model(path)
    reference = make_reference(model, (60,))
    plan = Plan(experts=mixtures(model), expert_bytes=TOP_K * 2 * 250_000)
    runtime, _ = open_runtime(model, plan, predictor="none")
    span = core_span(runtime.open_sequence(), reference.tokens[0][:40], "all")
    assert reference.holds(0, 0, 40, "all", np.array(runtime.step([span])))
    file = path / "model.safetensors"
    for name in mixtures(model)[0]:
        part = next(part for part in model.weights[name].entry.parts if part.name == "subscale")
        overwrite(file, part.offset, b"\xff" * part.length)
    for _ in range(3):
        with pytest.raises(_core.CoreError, match="found 255 in its subscale"):
            runtime.step([core_span(runtime.open_sequence(), reference.tokens[0][:40], "all")])


def test_the_engine_says_it_once(monkeypatch, load_small) -> None:
    """One EdgertError, one line with the file; the next request works."""
    plain = _core.WeightStore.set_stream
    with edgert.load(threads=2, context=256) as llm:
        expected = llm.generate("Once upon a time", max_tokens=8, temperature=0).tokens
    for k in (0, 30):
        faults = _core.Faults(fail_at=k)
        monkeypatch.setattr(_core.WeightStore, "set_stream", lambda *a, f=faults, **kw: plain(*a, faults=f, **kw))
        with load_small() as llm:
            with pytest.raises(EdgertError, match=r"failed: .*model\.safetensors: Input/output error") as raised:
                for _ in range(10):
                    llm.generate("Once upon a time", max_tokens=8, temperature=0)
            assert "\n" not in str(raised.value)
            for _ in range(2):
                assert llm.generate("Once upon a time", max_tokens=8, temperature=0).tokens == expected


def copied(models: Models, kind: str, name: str, folder: Path) -> tuple[Model, Path]:
    """The model and its weights' file, to be spoilt."""
    source = models.path((DENSE if kind == "dense" else MIXTURES)[name])
    for file in [source] if source.is_file() else source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    path = folder / ("model.gguf" if source.is_file() else "model.safetensors")
    return open_model(path if source.is_file() else folder), path


def overwrite(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _try(runtime: _core.Runtime, reference: Reference) -> bool:
    try:
        return is_right(runtime, reference)
    except _core.CoreError:
        return False
