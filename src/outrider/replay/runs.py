"""Runs: the steps of one episode that stand behind one another in a lane. Passes that would cost too much in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["ahead", "before", "sequences"]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]  # numba has no types
def ahead(serials: Any, heads: Any, at: Any, most: int) -> Any:
    """How many steps there are from each one on, itself included, to the end of its run or to the newest step.

    Args:
        serials: int64 [B].
        heads: int64 [N], the position of the next step of each lane.
        at: int32 [rows], -1 where the episode goes on behind a step.
        most: where to stop counting.

    Returns:
        int64 [B], from 1 to `most`.
    """
    rows, lanes = len(at), len(heads)
    found = np.empty(len(serials), np.int64)
    for i in range(len(serials)):
        serial = serials[i]
        limit = min(most, heads[serial % lanes] - serial // lanes)
        row = serial % rows
        count = 1
        while count < limit and at[row] == -1:
            row += lanes
            if row >= rows:
                row -= rows
            count += 1
        found[i] = count
    return found


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]  # numba has no types
def before(serials: Any, tails: Any, at: Any) -> Any:
    """How many steps of the same run are there before each one.

    Args:
        serials: int64 [B].
        tails: int64 [N], the position of the oldest step of each lane.
        at: int32 [rows], -1 where the episode goes on behind a step.

    Returns:
        int64 [B], from 0.
    """
    rows, lanes = len(at), len(tails)
    found = np.empty(len(serials), np.int64)
    for i in range(len(serials)):
        serial = serials[i]
        limit = serial // lanes - tails[serial % lanes]
        row = serial % rows
        count = 0
        while count < limit:
            row -= lanes
            if row < 0:
                row += rows
            if at[row] != -1:
                break
            count += 1
        found[i] = count
    return found


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]  # numba has no types
def sequences(serials: Any, heads: Any, at: Any, length: int) -> tuple[Any, Any, Any]:
    """The rows of the steps from each one on, and of the observations.

    Args:
        serials: int64 [B].
        heads: int64 [N], the position of the next step of each lane.
        at: int32 [rows], -1 where the episode goes on behind a step, else the slot of the true last observation.
        length: how many steps at most, L.

    Returns:
        (rows, index, lengths): int64 [L, B], the rows of the steps; int64 [L+1, B], the rows of the observations,
        ~slot of a true last one; int64 [B], how many steps each has. What is behind those is a row of any step, and so
        is the observation behind an end that nobody knows.
    """
    rows, lanes, count = len(at), len(heads), len(serials)
    steps, index = np.empty((length, count), np.int64), np.empty((length + 1, count), np.int64)
    lengths = np.empty(count, np.int64)
    for i in range(count):
        serial = serials[i]
        limit = min(length, heads[serial % lanes] - serial // lanes)
        row = serial % rows
        steps[0, i] = index[0, i] = row
        reached = 1
        while reached < limit and at[row] == -1:
            row += lanes
            if row >= rows:
                row -= rows
            steps[reached, i] = index[reached, i] = row
            reached += 1
        lengths[i] = reached
        following = row + lanes
        if following >= rows:
            following -= rows
        index[reached, i] = ~np.int64(at[row]) if at[row] >= 0 else following
        for t in range(reached, length):
            steps[t, i] = row
            index[t + 1, i] = row
    return steps, index, lengths
