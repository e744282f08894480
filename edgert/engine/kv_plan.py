"""How long a context may be, and where its keys and values go: decided before the runtime is made."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from edgert import _core
from edgert.device.read_size import disks_file, read_size_for
from edgert.errors import OutOfMemoryError, UsageError
from edgert.graph import Graph
from edgert.offload.sizes import as_option

PAGE_TOKENS = 64
KV_FORMATS = tuple(_core.kv_format_names())
# What the KV cache leaves of the free memory to everything else.
MEMORY_SHARE = 0.9
# Where pages lie on disk: least pages in memory; of the memory, what pages are read into, and how much that is at most,
# and at least in records (a page of one layer).
MIN_PAGES = 2
RING_SHARE = 1 / 8
MAX_RING_BYTES = 32 << 20
MIN_RING_RECORDS = 4
# Where programs keep large temporary files; /tmp is often in memory.
LARGE_TEMPORARY_FOLDER = Path("/var/tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class KVSpace:
    """Bytes for keys and values: pages in memory, pages on disk, and beside them what those are read into.

    Without pages on disk there is nothing to read into.
    """

    memory_bytes: int
    disk_bytes: int = 0
    ring_bytes: int = 0

    @property
    def pages_bytes(self) -> int:
        """Of all pages, wherever they are."""
        return self.memory_bytes + self.disk_bytes

    def spill(self, *, limit_bytes_per_s: int = 0) -> _core.KVSpill | None:
        """What the core is told of it; None where all pages stay in memory."""
        if not self.disk_bytes:
            return None
        folder = spill_folder()
        read_size = read_size_for(disks_file(), folder)
        return _core.KVSpill(
            memory_bytes=self.memory_bytes,
            ring_bytes=self.ring_bytes,
            folder=str(folder),
            chunk_bytes=read_size.chunk_bytes,
            depth=read_size.depth,
            limit_bytes_per_s=limit_bytes_per_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KVPlan:
    """`context` tokens a sequence may have; `budget_bytes` that the pages of all sequences may take."""

    context: int
    budget_bytes: int


def page_bytes(graph: Graph, kv_format: str) -> int:
    """Bytes of a page of 64 positions over all layers: keys and values of each KV head."""
    return max(1, sum(_layer_bytes(graph, kv_format)))


def kv_space(graph: Graph, kv_format: str, context: int, kv_ram: int | None) -> KVSpace:
    """What one sequence of so many tokens takes, a page more for the copy of one that is shared.

    kv_ram: bytes that are in memory at most, buffers included; None: all of it is. Raises UsageError where they are too
    few.
    """
    num_pages = -(-context // PAGE_TOKENS) + 1
    whole_bytes = num_pages * page_bytes(graph, kv_format)
    if kv_ram is None or whole_bytes <= kv_ram:
        return KVSpace(memory_bytes=whole_bytes)
    records = _records(graph, kv_format)
    least_bytes = least_kv_ram(graph, kv_format)
    if kv_ram < least_bytes:
        raise UsageError(
            f"--kv-ram: found {kv_ram} bytes, expected at least {as_option(least_bytes)} for this model and "
            f"--kv-format {kv_format}"
        )
    most_ring_bytes = min(int(kv_ram * RING_SHARE), MAX_RING_BYTES, kv_ram - MIN_PAGES * sum(records))
    ring_bytes = max(MIN_RING_RECORDS * max(records), most_ring_bytes)
    ring_bytes -= ring_bytes % _core.DIRECT_ALIGNMENT
    num_in_memory = (kv_ram - ring_bytes) // sum(records)
    return KVSpace(
        memory_bytes=num_in_memory * sum(records),
        disk_bytes=(num_pages - num_in_memory) * sum(records),
        ring_bytes=ring_bytes,
    )


def least_kv_ram(graph: Graph, kv_format: str) -> int:
    """The fewest bytes in memory with which pages can lie on disk."""
    records = _records(graph, kv_format)
    return MIN_PAGES * sum(records) + MIN_RING_RECORDS * max(records)


def spill_folder() -> Path:
    """Where pages go: TMPDIR, or else the system's folder for large temporary files."""
    if not os.environ.get("TMPDIR") and os.access(LARGE_TEMPORARY_FOLDER, os.W_OK | os.X_OK):
        return LARGE_TEMPORARY_FOLDER
    return Path(os.environ.get("TMPDIR") or tempfile.gettempdir())


def _layer_bytes(graph: Graph, kv_format: str) -> list[int]:
    layers = [node.attributes for node in graph.nodes if node.op == "attention"]
    return [int(a["num_kv_heads"]) * _core.kv_page_bytes(kv_format, int(a["head_dim"])) for a in layers]


def _records(graph: Graph, kv_format: str) -> list[int]:
    """Bytes of a page of each layer, where pages lie on disk."""
    sector = _core.DIRECT_ALIGNMENT
    return [-(-n // sector) * sector for n in _layer_bytes(graph, kv_format)] or [sector]


def plan_kv(*, model_context: int, asked_context: int | None, page_bytes: int, available_bytes: int) -> KVPlan:
    """The context: as asked, else the smaller of the model's and what fits the memory that is free.

    Pages are allocated as they are used; the budget only bounds them. Raises OutOfMemoryError where it does not fit.
    """
    num_pages = int(available_bytes * MEMORY_SHARE) // page_bytes
    # One page stays for the copy that a shared last page needs before it is written.
    fitting = (num_pages - 1) * PAGE_TOKENS
    context = max(1, min(model_context, fitting)) if asked_context is None else asked_context
    if fitting < context:
        needed = (-(-context // PAGE_TOKENS) + 1) * page_bytes
        raise OutOfMemoryError(
            f"context of {context} tokens: found {_mb(available_bytes)} MB free, expected {_mb(needed)} MB for "
            "its keys and values; ask for a smaller context, or free memory"
        )
    return KVPlan(context=context, budget_bytes=num_pages * page_bytes)


def _mb(num_bytes: int) -> int:
    return round(num_bytes / 1e6)
