"""Fewer experts a token than the model was made for: which ones go, and what is computed with the others."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from seeds import draw_rng

from edgert import _core
from edgert.engine.offload_items import top_k
from edgert.errors import UsageError
from edgert.llm import DEFAULT_MODEL, load
from edgert.loader import open_model

from .moe_model import write_moe

MOST = 4  # experts of a token in these tests
Floats = NDArray[np.float32]


@pytest.fixture
def rng() -> np.random.Generator:
    return draw_rng()


def changed(folder: Path, **values: object) -> Path:
    """The model with other values in its config.json; tensors of layers that it then lacks go."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8")) | values
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    weights = load_file(folder / "model.safetensors")
    lacks = [f"model.layers.{i}." for i in range(config["num_hidden_layers"], 8)]
    save_file({k: v for k, v in weights.items() if not k.startswith(tuple(lacks))}, str(folder / "model.safetensors"))
    return folder


def scored(path: Path, tokens: list[int], **options: object) -> Floats:
    with load(path, **options) as llm:  # type: ignore[arg-type]
        return llm.logits(tokens)


def drawn(rng: np.random.Generator, count: int = 120) -> list[int]:
    return [int(token) for token in rng.integers(0, 400, count)]


@pytest.mark.parametrize("normalize", [True, False])
def test_active_experts_equal_a_model_that_says_so(rng: np.random.Generator, tmp_path: Path, normalize: bool) -> None:
    tokens = drawn(rng)
    seed = int(rng.integers(1 << 30))
    model = changed(write_moe(tmp_path / "model", seed=seed)[0], num_experts_per_tok=MOST, norm_topk_prob=normalize)
    results = [scored(model, tokens)]
    for count in range(MOST, 0, -1):
        same = changed(
            write_moe(tmp_path / str(count), seed=seed)[0], num_experts_per_tok=count, norm_topk_prob=normalize
        )
        results.append(scored(model, tokens, active_experts=count))
        assert (results[-1] == scored(same, tokens)).all(), count
    assert (results[0] == results[1]).all()
    assert not any((a == b).all() for a, b in pairwise(results[1:]))


@pytest.mark.parametrize("normalize", [True, False])
def test_each_token_keeps_the_experts_whose_share_is_large_enough(
    rng: np.random.Generator, tmp_path: Path, normalize: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one layer its router sees the same whatever the experts give, and those that stay are the likeliest ones."""
    tokens = drawn(rng)
    model = changed(
        write_moe(tmp_path / "model", seed=int(rng.integers(1 << 30)))[0],
        num_hidden_layers=1, num_experts_per_tok=MOST, norm_topk_prob=normalize,
    )  # fmt: skip
    with load(model) as llm:
        llm.start_routing_trace()
        llm.logits(tokens)
        ((experts, weights, _),) = llm.stop_routing_trace()
    # As the core sums: float32, by ascending expert.
    total = np.zeros(len(tokens), np.float32)
    for k in range(MOST):
        total += weights[:, k]
    shares = weights if normalize else weights / total[:, None]
    least = float(np.median(shares))
    kept = (shares >= np.float32(least)) | (shares == shares.max(axis=1, keepdims=True))
    num_kept = kept.sum(axis=1)
    assert len(set(num_kept)) > 2 and num_kept.min() >= 1
    by_count = {count: scored(model, tokens, active_experts=count) for count in range(1, MOST + 1)}
    expected = np.stack([by_count[count][row] for row, count in enumerate(num_kept)])
    for isa, is_built, is_supported in _core.isa_levels():
        if is_built and is_supported:
            monkeypatch.setenv("EDGERT_ISA", isa)
            for threads, batch_tokens in ((1, 120), (3, 17)):
                got = scored(model, tokens, min_expert_weight=least, threads=threads, batch_tokens=batch_tokens)
                assert (got == expected).all(), (isa, threads, batch_tokens)
    with load(model, min_expert_weight=least) as llm:
        llm.start_routing_trace()
        llm.logits(tokens)
        ((chosen, new_weights, _),) = llm.stop_routing_trace()
    for row, stays in enumerate(kept):
        count = num_kept[row]
        assert chosen[row].tolist() == [*experts[row][stays], *[-1] * (MOST - count)]
        left = weights[row][stays] / (weights[row][stays].sum() if normalize else 1)
        assert np.allclose(new_weights[row], [*left, *[0] * (MOST - count)], rtol=1e-6, atol=0)


def test_the_likeliest_expert_stays(rng: np.random.Generator, tmp_path: Path) -> None:
    tokens = drawn(rng)
    model, _ = write_moe(tmp_path / "model", seed=int(rng.integers(1 << 30)))
    assert (scored(model, tokens, min_expert_weight=1.0) == scored(model, tokens, active_experts=1)).all()
    assert (scored(model, tokens, min_expert_weight=1e-9) == scored(model, tokens)).all()


def test_fewer_experts_need_less_memory(tmp_path: Path) -> None:
    model = changed(write_moe(tmp_path / "model")[0], num_experts_per_tok=MOST)
    assert [top_k(open_model(model, active_experts=count).graph) for count in (None, 3, 1)] == [MOST, 3, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"active_experts": 3}, "active_experts: found 3, expected at most the 2 that each token of this model uses"),
        ({"active_experts": 0}, "active_experts: found 0, expected an integer of at least 1"),
        ({"min_expert_weight": 1.5}, "min_expert_weight: found 1.5, expected a finite number of at least 0 and at mo"),
        ({"min_expert_weight": float("nan")}, "min_expert_weight: found nan, expected a finite number"),
    ],
)
def test_what_cannot_be_is_one_error(tmp_path: Path, options: dict[str, float], message: str) -> None:
    model, _ = write_moe(tmp_path / "model")
    with pytest.raises(UsageError, match=message):
        load(model, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["active_experts", "min_expert_weight"])
def test_a_model_without_experts_is_one_error(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}: found a model without experts, expected a mixture of experts"):
        load(DEFAULT_MODEL, **{name: 1})  # type: ignore[arg-type]
