"""Random inputs that are other ones in each run, and that a failing test can be given again."""

from __future__ import annotations

import os
import random

import numpy as np


def draw_seed() -> int:
    """Shown when a test fails; EDGERT_TEST_SEED repeats it."""
    seed = int(os.environ.get("EDGERT_TEST_SEED") or random.SystemRandom().getrandbits(32))
    print(f"EDGERT_TEST_SEED={seed}")
    return seed


def draw_rng() -> np.random.Generator:
    """A generator with such a seed."""
    return np.random.default_rng(draw_seed())
