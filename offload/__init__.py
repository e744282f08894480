"""Placement of weights under a memory budget, recorded routings of experts, and the simulator of their cache."""

if __name__ != "edgert.offload":
    raise ImportError(f"offload: found import as {__name__!r}, expected 'edgert.offload'; import edgert.offload")

from .pieces import POLICIES, Piece, Policy, WeightItem
from .placement import Budget, Placement, fitting_bytes, minimum_bytes, place

__all__ = [
    "POLICIES",
    "Budget",
    "Piece",
    "Placement",
    "Policy",
    "WeightItem",
    "fitting_bytes",
    "minimum_bytes",
    "place",
]
