"""The clock of the plan's steps: every step once, times that fit into the wall's, and nothing else changed."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from core.tiny_model import FFN, HIDDEN, LAYERS, make_model, open_runtime

from edgert import _core
from edgert.engine.profile import StepCost, step_profile


@pytest.fixture
def runtime(tmp_path: Path) -> _core.Runtime:
    return open_runtime(make_model(np.random.default_rng(1)), tmp_path)


def step(runtime: _core.Runtime, sequence: int, tokens: list[int]) -> bytes:
    return bytes(runtime.step([_core.Span(sequence, np.array(tokens, np.int32), "all")]).tobytes())


def test_every_step_of_the_plan_is_timed_within_the_time_of_its_runs(runtime: _core.Runtime) -> None:
    sequence = runtime.open_sequence()
    runtime.start_profile()
    started_s = time.perf_counter()
    for token in range(3):
        step(runtime, sequence, [token])
    elapsed_s = time.perf_counter() - started_s
    measured = runtime.stop_profile()
    assert measured["num_runs"] == 3
    kinds = [kind for kind, *_ in measured["steps"]]
    assert kinds[:2] == ["rope_tables", "embed"]
    assert kinds.count("linear") == 7 * LAYERS + 1
    assert kinds.count("attention") == kinds.count("store_kv") == LAYERS
    downs = [entry[1:5] for entry in measured["steps"] if "down_proj" in entry[1]]
    assert downs == [(f"{i}.down_proj.weight", "f32", HIDDEN, FFN) for i in range(LAYERS)]
    assert all(working_s > 0 and waiting_s >= 0 for *_, working_s, waiting_s in measured["steps"])
    sum_s = measured["starting_s"] + sum(working_s + waiting_s for *_, working_s, waiting_s in measured["steps"])
    assert 0 < sum_s <= elapsed_s


def test_a_profile_begins_empty_and_changes_no_bit(runtime: _core.Runtime) -> None:
    plain = step(runtime, runtime.open_sequence(), [1, 2, 3])
    runtime.start_profile()
    assert step(runtime, runtime.open_sequence(), [1, 2, 3]) == plain
    runtime.stop_profile()
    step(runtime, runtime.open_sequence(), [1])
    assert runtime.stop_profile()["num_runs"] == 0, "what was not asked for is not timed"
    runtime.start_profile()
    assert runtime.stop_profile()["num_runs"] == 0


def test_costs_are_means_of_a_run_summed_by_role() -> None:
    steps = [
        ("rms_norm", "", "", 0, 0, 0.5, 0.0),
        ("linear", "model.layers.0.mlp.up_proj.weight", "q8_0", 64, 32, 2.0, 0.25),
        ("linear", "model.layers.11.mlp.up_proj.weight", "q8_0", 64, 32, 4.0, 0.75),
        ("linear", "lm_head.weight", "q8_0", 64, 32, 1.0, 0.0),
    ]
    profile = step_profile({"num_runs": 2, "starting_s": 1.0, "steps": steps})
    first = profile.costs[0]
    assert first == StepCost(
        kind="linear", role="mlp.up_proj", format="q8_0", rows=64, cols=32, num_steps=2,
        weight_bytes=2 * 64 * 34, working_s=3.0, waiting_s=0.5,
    )  # fmt: skip
    assert [cost.role for cost in profile.costs] == ["mlp.up_proj", "lm_head", ""]
    assert profile.run_s == 0.5 + 3.5 + 0.5 + 0.25
