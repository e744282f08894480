"""Placement, budget, traces and the simulator of offloading. Nothing yet: every weight is resident."""

if __name__ != "edgert.offload":
    raise ImportError(f"offload: found import as {__name__!r}, expected 'edgert.offload'; import edgert.offload")
