"""Passes over rows that would cost too much in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["LANE_BITS", "stamp"]

LANE_BITS = 32
"""An episode id is the ordinal of the episode in its lane, shifted by this, plus the lane."""


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]  # numba has no types
def stamp(
    rows: Any, dummy: Any, lane_range: Any, reward: Any, ends: Any, columns: Any, lanes: Any, returns: Any
) -> tuple[Any, Any, Any, Any]:
    """Number the rows of a stretch of collection and find the episodes that ended in it.

    Args:
        rows: int64 [R], row numbers, each lane's in order of time.
        dummy: bool [R], rows that are no steps: they get the id of the episode that begins behind them, and -1 for
            their step; empty where there is none.
        lane_range: (stride, first): row r belongs to lane r % stride; `first` has index 0 in `lanes` and `returns`.
        reward: float64 [rows], by row number, or [rows, k] of vector rewards.
        ends: (terminated, truncated, cut), bool by row number.
        columns: (episode_id, step), int64 by row number, written.
        lanes: (ordinal, step), int64 [N]: of the running episode of each lane, updated.
        returns: float64 [N], or [N, k]: sum of rewards of the running episode of each lane, updated.

    Returns:
        lane int64 [E], return float64 [E] or [E, k], length int64 [E] and whether it was cut, bool [E], of the E
        episodes that ended, in the order of their last rows.
    """
    terminated, truncated, cut = ends
    episode_id, step_column = columns
    ordinal, step = lanes
    stride, first = lane_range
    count = 0
    for i in range(len(rows)):
        row = rows[i]
        if terminated[row] or truncated[row] or cut[row]:
            count += 1
    ended_lane = np.empty(count, np.int64)
    ended_return = np.empty((count, *returns.shape[1:]), np.float64)
    ended_length = np.empty(count, np.int64)
    ended_cut = np.empty(count, np.bool_)
    count = 0
    for i in range(len(rows)):
        row = rows[i]
        lane = row % stride
        n = lane - first
        episode_id[row] = (ordinal[n] << LANE_BITS) + lane
        if len(dummy) and dummy[i]:
            step_column[row] = -1
            continue
        step_column[row] = step[n]
        step[n] += 1
        returns[n] += reward[row]
        if terminated[row] or truncated[row] or cut[row]:
            ended_lane[count] = lane
            ended_return[count] = returns[n]
            ended_length[count] = step[n]
            ended_cut[count] = not (terminated[row] or truncated[row])
            count += 1
            ordinal[n] += 1
            step[n] = 0
            returns[n] = 0.0
    return ended_lane, ended_return, ended_length, ended_cut
