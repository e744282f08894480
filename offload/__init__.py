"""Recorded routings of experts, and the simulator of the cache that holds experts in memory."""

if __name__ != "edgert.offload":
    raise ImportError(f"offload: found import as {__name__!r}, expected 'edgert.offload'; import edgert.offload")
