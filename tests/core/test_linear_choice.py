"""Which kernel a product takes: forced, known from before, or timed; the bits are those of every other."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import edgert
from edgert import _core
from edgert.device.isa import select_isa
from edgert.device.kernels import KernelChoice, add_choices, cache_file, read_choices
from edgert.llm import DEFAULT_MODEL
from edgert.loader import Model, load_weights, open_model

TOKENS = np.arange(3, 103, dtype=np.int32)
# Each class of token counts: 1, 2, 3-4, 5-8, 9-16, 17-64, more.
SPANS = (1, 2, 3, 5, 11, 18, 100)
MOST_TOKENS = (1, 2, 4, 8, 16, 64, 2**31 - 1)
KNOWN = tuple[str, int, int, int, str]


@pytest.fixture(scope="module")
def opened() -> Iterator[tuple[Model, _core.WeightStore]]:
    model = open_model(DEFAULT_MODEL)
    store = _core.WeightStore()
    load_weights(model, store)
    yield model, store


def make_runtime(
    opened: tuple[Model, _core.WeightStore], kernel: str = "", known: list[KNOWN] | None = None, budget_s: float = 0.0
) -> _core.Runtime:
    model, store = opened
    return _core.Runtime(
        model.graph.compile_args(),
        store,
        isa=_core.best_isa(),
        threads=1,
        batch_tokens=128,
        context=256,
        kv_format="f16",
        kv_budget_bytes=1 << 24,
        kernel=kernel,
        known_kernels=known or [],
        timing_budget_s=budget_s,
    )


def logits(runtime: _core.Runtime, span: int) -> NDArray[np.float32]:
    sequence = runtime.open_sequence()
    return np.array(runtime.step([_core.Span(sequence, TOKENS[:span], "all")]))


def every_case(model: Model, kernel: str) -> list[KNOWN]:
    shapes = {(source.entry.format, source.rows, source.cols) for source in model.weights.values() if source.cols}
    return [(*shape, tokens, kernel) for shape in sorted(shapes) for tokens in MOST_TOKENS]


def kernels_of_p8(runtime: _core.Runtime) -> set[str]:
    return {name for format_name, *_, name in (case for case, _ in runtime.kernels) if format_name == "p8"}


def timed(runtime: _core.Runtime) -> list[tuple[KNOWN, dict[str, float]]]:
    return [(case, seconds) for case, seconds in runtime.kernels if seconds]


@pytest.mark.parametrize("kernel", [*_core.kernel_names(_core.best_isa()), "a name of another build"])
def test_every_kernel_gives_the_same_logits(opened: tuple[Model, _core.WeightStore], kernel: str) -> None:
    first = make_runtime(opened)
    forced = make_runtime(opened, kernel=kernel)
    known = make_runtime(opened, known=every_case(opened[0], kernel))
    for runtime in (forced, known):
        used = kernels_of_p8(runtime)
        if kernel.endswith("dot_wide"):  # of one token
            assert kernel in used
        else:
            assert used == ({kernel} if kernel.endswith("dot") else kernels_of_p8(first))
    for span in SPANS:
        expected = logits(first, span)
        assert (logits(forced, span) == expected).all(), span
        assert (logits(known, span) == expected).all(), span


def test_a_kernel_that_rounds_is_taken_only_where_it_is_forced(opened: tuple[Model, _core.WeightStore]) -> None:
    rounded = _core.rounded_kernel_names(_core.best_isa())
    assert not set(rounded) & set(_core.kernel_names(_core.best_isa()))
    for name in rounded:
        for runtime in (make_runtime(opened, known=every_case(opened[0], name)), make_runtime(opened, budget_s=0.1)):
            assert name not in {kernel for *_, kernel in (case for case, _ in runtime.kernels)}


def test_nothing_is_timed_without_need(opened: tuple[Model, _core.WeightStore]) -> None:
    assert timed(make_runtime(opened)) == []
    assert timed(make_runtime(opened, kernel="dot", budget_s=5.0)) == []
    assert timed(make_runtime(opened, known=every_case(opened[0], "dot"), budget_s=5.0)) == []


def test_what_was_timed_is_known_the_next_time(opened: tuple[Model, _core.WeightStore]) -> None:
    if not any("/" in name for name in _core.kernel_names(_core.best_isa())):
        pytest.skip("a single kernel for each format: nothing to choose")
    known: dict[tuple[str, int, int, int], KNOWN] = {}
    for _ in range(20):  # a busy machine gives no steady measurement
        for case, seconds in timed(make_runtime(opened, known=list(known.values()), budget_s=1.0)):
            assert case[:4] not in known
            assert case[4] in seconds
            assert len(seconds) > 1
            assert min(seconds.values()) > 0
            # Never more than 5 % slower than the best.
            assert seconds[case[4]] <= 1.05 * min(seconds.values())
            known[case[:4]] = case
    shapes = {case[:3] for case in every_case(opened[0], "")}
    assert {case[:3] for case in known} <= shapes


def test_a_start_with_all_choices_known_measures_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = cache_file()
    assert path is not None
    isa = select_isa()
    known = [
        KernelChoice(
            isa=isa, threads=1, format=name, rows=rows, cols=cols, tokens=tokens, kernel=kernel, seconds={kernel: 1e-6}
        )
        for kernel in ("float", "dot")
        for name, rows, cols, tokens, _ in every_case(open_model(DEFAULT_MODEL), kernel)
        if (kernel == "float") == (name in ("f32", "f16", "bf16"))
    ]
    add_choices(path, known)
    content = path.read_bytes()
    for _ in range(2):
        with edgert.load(threads=1) as llm:
            assert llm.isa == isa
    assert path.read_bytes() == content
    # The same for another number of threads is not known: it is measured, and kept beside, unless the machine is busy.
    with edgert.load(threads=2):
        assert [c for c in read_choices(path) if c.threads == 1] == sorted(known, key=lambda c: c.key)


def test_no_product_is_faster_than_memory_can_be() -> None:
    """More threads than cores: one that starts late must not make the time short."""
    rows, cols = 2048, 1024
    times = _core.time_kernels(_core.best_isa(), "p4", rows, cols, 1, 8, 1, 40)
    assert all(seconds > rows * cols * 4.25 / 8 / 1e12 for passes in times.values() for seconds in passes)
