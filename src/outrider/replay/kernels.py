"""Passes over rows that would cost too much in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["advance", "windows"]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]  # numba has no types
def windows(serials: Any, heads: Any, ends: Any, reward: Any, steps: int, gamma: float) -> tuple[Any, Any, Any, Any]:
    """Follow each step for up to `steps` steps: to an end or a cut, or to the newest one.

    Args:
        serials: int64 [B].
        heads: int64 [N], the position of the next step of each lane.
        ends: (at, terminated): int32 [rows], -1 where the episode goes on, and bool [rows].
        reward: float64 [rows].
        steps: how many at most, 1 or more.
        gamma: the discount of one step.

    Returns:
        (last, following, returns, discount): int64 [B], the row of the last step of each; int64 [B], the row of the
        observation behind it, or ~slot where it is among the last observations; float64 [B], the discounted sum of the
        rewards; float64 [B], gamma to the power of the number of steps, or 0 where the last one terminated.
    """
    at, terminated = ends
    rows, lanes = len(reward), len(heads)
    count = len(serials)
    last, following = np.empty(count, np.int64), np.empty(count, np.int64)
    returns, discount = np.empty(count, np.float64), np.empty(count, np.float64)
    for i in range(count):
        serial = serials[i]
        ahead = heads[serial % lanes] - serial // lanes
        row = serial % rows
        total, scale = reward[row], gamma
        for _ in range(1, min(steps, ahead)):
            if at[row] != -1:
                break
            row += lanes
            if row >= rows:
                row -= rows
            total += scale * reward[row]
            scale *= gamma
        last[i], returns[i] = row, total
        discount[i] = 0.0 if terminated[row] else scale
        if at[row] >= 0:
            following[i] = ~np.int64(at[row])
        else:
            following[i] = (row + lanes) % rows
    return last, following, returns, discount


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]  # numba has no types
def advance(marks: Any, tails: Any, heads: Any, versions: Any, oldest: int) -> None:
    """Move the mark of each lane to its first step whose version is `oldest` or later, or behind its newest step.

    Args:
        marks: int64 [N], positions; they never move back.
        tails: int64 [N], the position of the oldest step of each lane.
        heads: int64 [N], the position of the next one.
        versions: int64 [rows].
        oldest: the oldest version that counts.
    """
    rows, lanes = len(versions), len(heads)
    for lane in range(lanes):
        position = max(marks[lane], tails[lane])
        while position < heads[lane] and versions[(position * lanes + lane) % rows] < oldest:
            position += 1
        marks[lane] = position
