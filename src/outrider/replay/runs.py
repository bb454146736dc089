"""Runs: the steps of one episode that stand behind one another in a lane. Passes that would cost too much in Python.

Two steps of a lane are of one run if their runs began at the same position, which is a column. `along` finds the ends
of runs in that way, without looking at what is in between; `ahead` and `sequences` go from step to step, and stop at
flags.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["ahead", "along", "possible", "running", "sequences"]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]  # numba has no types
def possible(serials: Any, heads: Any, ids: tuple[Any, Any], least: int, stride: int) -> Any:
    """Whether each step has an index that is a multiple of `stride`, and a run of `least` steps from there on.

    Args:
        serials: int64 [B].
        heads: int64 [N], the position of the next step of each lane.
        ids: (run, step), int64 [rows] each.
        least: 1 or more.
        stride: 1 or more.

    Returns:
        bool [B].
    """
    run, step = ids
    rows, lanes = len(step), len(heads)
    found = np.zeros(len(serials), np.bool_)
    for i in range(len(serials)):
        serial = serials[i]
        row = serial % rows
        if (stride == 1 or step[row] % stride == 0) and heads[serial % lanes] - serial // lanes >= least:
            last = (row + (least - 1) * lanes) % rows
            found[i] = run[last] == run[row]
    return found


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]  # numba has no types
def running(serials: Any, heads: Any, goes_on: Any, run: Any) -> Any:
    """Whether the episode of each step still runs.

    Args:
        serials: int64 [B].
        heads: int64 [N], the position of the next step of each lane.
        goes_on: bool [N], whether the newest episode of a lane still runs.
        run: int64 [rows].

    Returns:
        bool [B].
    """
    rows, lanes = len(run), len(heads)
    found = np.zeros(len(serials), np.bool_)
    for i in range(len(serials)):
        serial = serials[i]
        lane = serial % lanes
        if goes_on[lane]:
            newest = ((heads[lane] - 1) * lanes + lane) % rows
            found[i] = run[newest] == run[serial % rows]
    return found


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]  # numba has no types
def along(serials: Any, limits: Any, run: Any, lanes: int, way: int) -> Any:
    """How many more steps the run of each step has in one direction, by bisection.

    Args:
        serials: int64 [B].
        limits: int64 [B], how many steps are there at most.
        run: int64 [rows].
        lanes: how many there are.
        way: 1 for later steps, -1 for earlier ones.

    Returns:
        int64 [B], from 0.
    """
    rows = len(run)
    found = np.empty(len(serials), np.int64)
    for i in range(len(serials)):
        row = serials[i] % rows
        # `inside` steps further on is the same run; twice as far each time, and then half as far.
        inside, jump, grows = 0, 1, True
        while jump:
            there = inside + jump
            other = (row + way * there * lanes) % rows
            if there <= limits[i] and run[other] == run[row]:
                inside = there
            else:
                grows = False
            jump = jump * 2 if grows else jump // 2
        found[i] = inside
    return found


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
def sequences(serials: Any, heads: Any, ends: tuple[Any, ...], step: Any, length: int) -> tuple[Any, Any, Any, Any]:
    """Where the steps from each one on are, and what follows from the first and the last of them.

    Args:
        serials: int64 [B].
        heads: int64 [N], the position of the next step of each lane.
        ends: (at, terminated, truncated, cut): int32 [rows], -1 where the episode goes on behind a step, else the slot
            of the true last observation; bool [rows] each.
        step: int64 [rows].
        length: how many steps at most, L.

    Returns:
        (index, lengths, numbers, marks): int64 [L+1, B], the rows of the observations, ~slot of a true last one, and
        behind it any row, as where nobody knows it; int64 [B], how many steps each has; int64 [L, B], `step`, and 0
        behind; bool [5, L, B]: a step, a first step of an episode, terminated, truncated, cut.
    """
    at = ends[0]
    rows, lanes, count = len(at), len(heads), len(serials)
    index, lengths = np.empty((length + 1, count), np.int64), np.empty(count, np.int64)
    numbers, marks = np.zeros((length, count), np.int64), np.zeros((5, length, count), np.bool_)
    for i in range(count):
        serial = serials[i]
        limit = min(length, heads[serial % lanes] - serial // lanes)
        row = serial % rows
        first, reached = step[row], 0
        while True:
            index[reached, i], numbers[reached, i], marks[0, reached, i] = row, first + reached, True
            reached += 1
            if reached == limit or at[row] != -1:
                break
            row += lanes
            if row >= rows:
                row -= rows
        lengths[i] = reached
        marks[1, 0, i] = first == 0
        marks[2, reached - 1, i], marks[3, reached - 1, i] = ends[1][row], ends[2][row]
        marks[4, reached - 1, i] = ends[3][row]
        following = row + lanes
        if following >= rows:
            following -= rows
        index[reached, i] = ~np.int64(at[row]) if at[row] >= 0 else following
        index[reached + 1 :, i] = row
    return index, lengths, numbers, marks
