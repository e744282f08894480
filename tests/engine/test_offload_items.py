"""What placement is told of a model, against what the core does with it."""

from dataclasses import replace
from pathlib import Path

import pytest

from edgert import _core
from edgert.convert import convert
from edgert.device.isa import select_isa
from edgert.engine.kv_plan import page_bytes
from edgert.engine.memory_plan import MemoryPlanner
from edgert.engine.offload_items import (
    activation_bytes,
    base_bytes,
    budget_context,
    top_k,
    weight_items,
)
from edgert.errors import OutOfMemoryError
from edgert.llm import DEFAULT_MODEL
from edgert.loader import load_weights, open_model

GOLDEN = Path(__file__).parents[1] / "models" / "golden"
MODELS = [*sorted(GOLDEN.glob("*.gguf")), DEFAULT_MODEL]
PAGE_BYTES = 4096


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)
def test_items_are_what_the_store_holds(path: Path) -> None:
    model = open_model(path)
    items = weight_items(model)
    assert sorted(item.name for item in items) == sorted(model.weights)
    assert sum(item.file_bytes for item in items) == model.num_bytes
    store = _core.WeightStore()
    load_weights(model, store, threads=1)
    resident = sum(item.resident_bytes for item in items)
    # The arena is whole pages, and has room to align it.
    assert resident <= store.resident_bytes <= resident + 64 + PAGE_BYTES
    for tokens in (1, 16, 100, 512):
        runtime = _core.Runtime(
            model.graph.compile_args(), store, isa=select_isa(), threads=1, batch_tokens=tokens, context=512,
            kv_format="f16", kv_budget_bytes=1 << 24,
        )  # fmt: skip
        bound = activation_bytes(model, tokens)
        assert runtime.activation_bytes <= max(bound, PAGE_BYTES)
        assert tokens < 100 or bound < 3 * runtime.activation_bytes


def test_layers_come_in_order_and_a_tied_embedding_last() -> None:
    model = open_model(DEFAULT_MODEL)
    assert model.config["tie_word_embeddings"] is True
    items = weight_items(model)
    layers = [item.layer for item in items if item.layer is not None]
    assert layers == sorted(layers)
    assert set(layers) == set(range(model.config["num_hidden_layers"]))
    head = items[-1]
    assert (head.name, head.role, head.kind, head.is_logits) == ("model.embed_tokens.weight", "output", "matrix", True)
    assert [item.name for item in items if item.kind == "lookup"] == []
    assert {item.kind for item in items if item.role == "norm"} == {"vector"}
    query = next(item for item in items if item.role == "attn_q")
    assert query.num_segments == len(model.weights[query.name].entry.parts) > 1
    assert query.unit_rows == 16


def test_an_embedding_that_is_only_looked_up_and_heads_that_cannot_be_cut() -> None:
    model = open_model(GOLDEN / "llama.gguf")
    items = {item.name: item for item in weight_items(model)}
    lookup = items["model.embed_tokens.weight"]
    assert (lookup.kind, lookup.is_logits) == ("lookup", False)
    assert items["lm_head.weight"].is_logits
    name = "model.layers.0.self_attn.q_proj.weight"
    assert model.weights[name].row_order == "unpermute_rope"
    assert items[name].num_segments == 1
    # Rows of a head come from all over it: a piece has whole heads, and whole strips of 16 rows.
    for head_dim, unit_rows in ((8, 16), (16, 16), (24, 48), (48, 48)):
        source = replace(model.weights[name], heads=items[name].rows // head_dim)
        changed = replace(model, weights=model.weights | {name: source})
        found = next(item for item in weight_items(changed) if item.name == name)
        assert found.unit_rows == unit_rows


def test_experts(tmp_path: Path) -> None:
    model = open_model(GOLDEN / "qwen3_moe.gguf")
    items = weight_items(model)
    chosen, num_experts = model.config["num_experts_per_tok"], model.config["num_experts"]
    assert top_k(model.graph) == chosen
    assert top_k(open_model(DEFAULT_MODEL).graph) == 0
    experts = [item for item in items if item.kind == "expert" and item.layer == 0]
    assert len(experts) in (0, 3 * num_experts)
    assert {item.role for item in items if item.kind == "expert"} == {"expert_gate", "expert_up", "expert_down"}
    assert {item.kind for item in items if item.role == "router"} == {"matrix"}


def test_outliers_and_views(tmp_path: Path) -> None:
    convert(GOLDEN / "llama.gguf", tmp_path / "c4", outliers=0.01)
    full, view = open_model(tmp_path / "c4"), open_model(tmp_path / "c4", bits=2)
    for model in (full, view):
        store = _core.WeightStore()
        load_weights(model, store, threads=1)
        resident = sum(item.resident_bytes for item in weight_items(model))
        assert resident <= store.resident_bytes <= resident + 64 + PAGE_BYTES
    for wide, narrow in zip(weight_items(full), weight_items(view), strict=True):
        assert narrow.file_bytes < wide.file_bytes or wide.kind == "vector"
        if wide.role == "mlp_up":
            assert wide.num_segments == narrow.num_segments + 2  # two planes
            assert len(full.weights[wide.name].outlier_ranges()) == 3


def test_the_default_context_takes_an_eighth() -> None:
    assert budget_context(4096, 1 << 20, 8 << 30) == 4096
    # 8 pages of 64 tokens, of which one stays for a copy.
    assert budget_context(4096, 1 << 20, 64 << 20) == 7 * 64
    assert budget_context(4096, 1 << 20, 1 << 20) == 256
    assert budget_context(100, 1 << 20, 1 << 20) == 100


def test_what_comes_before_the_weights() -> None:
    model = open_model(DEFAULT_MODEL)
    tokenizer_bytes = (DEFAULT_MODEL / "tokenizer.json").stat().st_size
    assert base_bytes(model.checkpoint) == (64 << 20) + 3 * tokenizer_bytes


@pytest.mark.parametrize("context", [None, 640])
def test_the_least_budgets(context: "int | None") -> None:
    planner = MemoryPlanner(
        model=open_model(DEFAULT_MODEL), base_bytes=1 << 26, threads=2, context=context, batch_tokens=None,
        kv_format="q8_0",
    )  # fmt: skip
    least, fitting = planner.minimum_bytes(), planner.fitting_bytes()
    assert not planner.plan(least).placement.fits
    assert planner.plan(fitting).placement.fits
    assert not planner.plan(fitting - 1).placement.fits
    for too_small in (1 << 20, least - 1):
        with pytest.raises(OutOfMemoryError, match=f"expected at least {-(-least // 2**20)} MiB"):
            planner.plan(too_small)
    for total in range(least, 2 * fitting, (2 * fitting - least) // 50):
        plan = planner.plan(total)
        assert plan.budget.total_bytes == total
        assert plan.budget.fixed_bytes + plan.placement.memory_bytes <= total
        pages_bytes = (-(-plan.context // 64) + 1) * page_bytes(planner.model.graph, "q8_0")
        if plan.kv.disk_bytes == 0:
            assert plan.kv_bytes == pages_bytes
        else:
            assert plan.kv_bytes < pages_bytes <= plan.kv.pages_bytes
        assert plan.context == context or context is None
        assert plan.round_tokens <= plan.step_tokens <= plan.context
