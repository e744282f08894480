"""How long a context may be, from the memory that is free, and which of its pages lie on disk."""

from pathlib import Path

import pytest

from edgert.engine.kv_plan import PAGE_TOKENS, KVSpace, kv_space, least_kv_ram, page_bytes, plan_kv, spill_folder
from edgert.errors import OutOfMemoryError, UsageError
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


def test_keys_and_values_stay_in_memory_where_they_fit() -> None:
    page = page_bytes(make_graph(), "f16")
    assert kv_space(make_graph(), "f16", 65, None) == KVSpace(memory_bytes=3 * page)
    assert kv_space(make_graph(), "f16", 64, 2 * page) == KVSpace(memory_bytes=2 * page)
    assert kv_space(make_graph(), "f16", 1, None).pages_bytes == 2 * page


def test_what_does_not_fit_lies_on_disk() -> None:
    """A page of this graph is 3 x 4096 bytes in f16: a sector for each layer."""
    page = 3 * 4096
    assert page_bytes(make_graph(), "f16") == page
    space = kv_space(make_graph(), "f16", 100 * 64, 50 * page)
    assert space.ring_bytes == 18 * 4096, "an eighth of 50 pages, in whole sectors"
    assert space.memory_bytes == 44 * page
    assert space.memory_bytes + space.ring_bytes <= 50 * page
    assert space.pages_bytes == 101 * page
    assert kv_space(make_graph(), "f16", 1 << 24, 1 << 30).ring_bytes == 32 << 20


def test_the_fewest_bytes_that_may_be_in_memory() -> None:
    """Two pages, and 4 records; in q8_0 a layer takes 2560 bytes, on disk a sector."""
    least = least_kv_ram(make_graph(), "q8_0")
    assert least == (2 * 3 + 4) * 4096
    space = kv_space(make_graph(), "q8_0", 10_000, least)
    assert (space.memory_bytes, space.ring_bytes) == (2 * 3 * 4096, 4 * 4096)
    with pytest.raises(UsageError, match=f"--kv-ram: found {least - 1} bytes, expected at least 1MiB"):
        kv_space(make_graph(), "q8_0", 10_000, least - 1)


def test_pages_go_where_tmpdir_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert spill_folder() == tmp_path
    monkeypatch.delenv("TMPDIR")
    assert spill_folder() in (Path("/var/tmp"), Path("/tmp"))
