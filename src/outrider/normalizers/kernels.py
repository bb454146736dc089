"""The pass over rewards in the order of time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["running_returns"]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]  # numba has no types
def running_returns(reward: Any, before: Any, goes_on: Any, gamma: float) -> Any:
    """Discounted sums float64 [M, k] of the rewards up to each row.

    Rows that go on (bool [M]) add to the sum of the row before them, the others to their own row of `before` [M, k].
    """
    rows, width = reward.shape
    found = np.empty((rows, width))
    for i in range(rows):
        for j in range(width):
            past = found[i - 1, j] if goes_on[i] else before[i, j]
            found[i, j] = reward[i, j] + gamma * past
    return found
