"""Numbers that every side of a comparison of returns gets; needs NumPy only."""

from __future__ import annotations

import numpy as np

STEPS, LANES = 2048, 64
GAMMA, LAM = 0.99, 0.95


def columns(dtype: str) -> dict[str, np.ndarray]:
    """Arrays [2048, 64], each of its own memory; one step in a hundred ends in each way."""
    rng = np.random.default_rng(0)
    numbers = {
        name: rng.normal(size=(STEPS, LANES)).astype(dtype) for name in ("reward", "value", "next_value", "log_ratio")
    }
    return numbers | {name: rng.random((STEPS, LANES)) < 0.01 for name in ("terminated", "truncated")}
