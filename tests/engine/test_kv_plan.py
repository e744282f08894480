"""How long a context may be, from the memory that is free."""

import pytest

from edgert.engine.kv_plan import PAGE_TOKENS, page_bytes, plan_kv
from edgert.errors import OutOfMemoryError
from edgert.graph import Graph


def make_graph() -> Graph:
    graph = Graph()
    x = graph.embed("embed", 10, 32)
    for layer in range(3):
        graph.attention(x, x, x, layer=layer, num_heads=4, num_kv_heads=2, head_dim=8, scale=1.0)
    return graph


def test_a_page_holds_keys_and_values_of_every_layer() -> None:
    assert page_bytes(make_graph(), "f16") == 3 * 2 * 2 * 8 * 2 * PAGE_TOKENS
    assert page_bytes(make_graph(), "f32") == 2 * page_bytes(make_graph(), "f16")


def test_the_default_context_is_the_models_where_it_fits() -> None:
    plan = plan_kv(model_context=1024, asked_context=None, page_bytes=1000, available_bytes=10**9)
    assert plan.context == 1024
    assert plan.budget_bytes <= 0.9 * 10**9


def test_the_default_context_is_what_fits_where_memory_is_short() -> None:
    plan = plan_kv(model_context=10**6, asked_context=None, page_bytes=1000, available_bytes=12_000)
    assert plan.context == 9 * PAGE_TOKENS
    assert plan.budget_bytes == 10_000


def test_a_context_that_does_not_fit_is_refused() -> None:
    with pytest.raises(OutOfMemoryError, match=r"context of 100000 tokens: found \d+ MB free, expected \d+ MB"):
        plan_kv(model_context=1024, asked_context=100_000, page_bytes=10**6, available_bytes=10**8)
    with pytest.raises(OutOfMemoryError, match="context of 1 tokens"):
        plan_kv(model_context=1024, asked_context=None, page_bytes=10**6, available_bytes=10**5)
