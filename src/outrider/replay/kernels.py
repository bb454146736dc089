"""Passes over rows that would cost too much in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

__all__ = ["advance", "windows"]


def _add(returns: Any, i: Any, scale: Any, reward: Any) -> Any:
    """Add a reward, scaled, to return number i: compiled for rewards that are numbers and for vectors."""


@overload(_add)  # type: ignore[untyped-decorator,unused-ignore]  # numba has no types
def _add_of(returns: Any, i: Any, scale: Any, reward: Any) -> Any:  # noqa: ARG001 - the names must be those
    def number(returns: Any, i: Any, scale: Any, reward: Any) -> Any:
        returns[i] += scale * reward

    def vector(returns: Any, i: Any, scale: Any, reward: Any) -> Any:
        for objective in range(len(reward)):
            returns[i, objective] += scale * reward[objective]

    return number if isinstance(reward, types.Number) else vector


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]  # numba has no types
def windows(serials: Any, heads: Any, records: Any, returns: Any, way: tuple[int, float]) -> tuple[Any, Any, Any]:
    """Follow each step for up to `steps` steps: to an end or a cut, or to the newest one.

    What is known of steps besides is looked up on the way, in one pass over the rows.

    Args:
        serials: int64 [B].
        heads: int64 [N], the position of the next step of each lane.
        records: [rows], as `outrider.replay.columns` has them; "final" is -1 where the episode goes on, else the slot
            of the last observation or -2.
        returns: float64 [B] or [B, objectives], zeros, to which the discounted sums of the rewards are added.
        way: (steps, gamma): how many at most, 1 or more, and the discount of one step.

    Returns:
        (numbers, flags, discount): int64 [7, B], which are the row of the last step; that of the observation behind it,
        or ~slot where it is among the last observations; and of the first step row, lane, episode_id, step and version;
        bool [2, B], whether the last one terminated and was truncated; float64 [B], gamma to the power of the number of
        steps, or 0 where the last one terminated.
    """
    steps, gamma = way
    rows, lanes, count = len(records), len(heads), len(serials)
    numbers, flags = np.empty((7, count), np.int64), np.empty((2, count), np.bool_)
    discount = np.empty(count, np.float64)
    # A short loop, of which the processor has many rounds under way: the rows come from memory side by side.
    for i in range(count):
        row = serials[i] % rows
        record = records[row]
        numbers[2, i], flags[0, i] = row, record.terminated
        _add(returns, i, 1.0, record.reward)
    for i in range(count):
        position = serials[i] // lanes
        lane = serials[i] - position * lanes
        row = numbers[2, i]
        record = records[row]
        numbers[3, i], numbers[4, i] = lane, record.episode_id
        numbers[5, i], numbers[6, i] = record.step, record.version
        scale = gamma
        for _ in range(1, min(steps, heads[lane] - position)):
            if record.final != -1:
                break
            row += lanes
            if row >= rows:
                row -= rows
            record = records[row]
            _add(returns, i, scale, record.reward)
            scale *= gamma
        following = row + lanes if row + lanes < rows else row + lanes - rows
        numbers[0, i], numbers[1, i] = row, ~np.int64(record.final) if record.final >= 0 else following
        flags[0, i], flags[1, i] = record.terminated, record.truncated
        discount[i] = 0.0 if record.terminated else scale
    return numbers, flags, discount


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


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]  # numba has no types
def stacks(index: Any, owners: Any, at: Any, lanes: int, count: int) -> Any:
    """Where the frames of each stack are, oldest first: a walk back along the lane, to where its segment begins.

    Args:
        index: int64 [n], the row of the newest frame, or ~slot where it is among the true last observations.
        owners: int64 [slots], the row of the step before each of those.
        at: int32 [rows], the slot of the older frames where a segment begins, -1 elsewhere.
        lanes: how many there are.
        count: frames k of a stack, 2 or more.

    Returns:
        int64 [n, k]: rows. Where it is negative, the newest is ~slot as in `index`, and another one is ~place among
        the older frames, of which each slot has k-1.
    """
    rows = len(at)
    found = np.empty((len(index), count), np.int64)
    for i in range(len(index)):
        place, row = count - 1, index[i]
        if row < 0:
            found[i, place] = row
            place -= 1
            row = owners[~row]
        while place >= 0:
            found[i, place] = row
            place -= 1
            if at[row] >= 0:
                older = (np.int64(at[row]) + 1) * (count - 1) - 1
                while place >= 0:
                    found[i, place] = ~older
                    older -= 1
                    place -= 1
            else:
                row -= lanes
                if row < 0:
                    row += rows
    return found


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]  # numba has no types
def misfit(later: Any, i: Any, earlier: Any, j: Any) -> int:
    """The first n for which the stack `later[i[n]]` is not `earlier[j[n]]` shifted by one frame; -1 if there is none.

    Args:
        later: [m, k, words], integers.
        i: int64 [n].
        earlier: [m', k, words].
        j: int64 [n].
    """
    count, words = later.shape[1], later.shape[2]
    for n in range(len(i)):
        for place in range(count - 1):
            one, other = later[i[n], place], earlier[j[n], place + 1]
            # All words of a frame are compared, which costs less than to stop at the first that differs.
            different = np.uint64(0)
            for word in range(words):
                different |= one[word] ^ other[word]
            if different:
                return n
    return -1
