"""Routings made up for tests."""

import numpy as np
from numpy.typing import NDArray

Routing = tuple[NDArray[np.int16], NDArray[np.float32]]


def random_routing(seed: int, tokens: int, layers: int, experts: int, top_k: int, skew: float = 0.5) -> Routing:
    """Experts and weights; a smaller skew makes fewer experts popular."""
    rng = np.random.default_rng(seed)
    popular = rng.dirichlet(np.full(experts, skew), layers) + 1e-3
    # The largest top_k of log(p) + Gumbel noise: draws without replacement.
    keys = np.log(popular) + rng.gumbel(size=(tokens, layers, experts))
    chosen = np.sort(np.argsort(-keys, axis=2)[:, :, :top_k], axis=2).astype(np.int16)
    weights = rng.random(chosen.shape, np.float32) + np.float32(0.1)
    return chosen, weights / weights.sum(axis=2, keepdims=True)
