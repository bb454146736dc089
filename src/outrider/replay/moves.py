"""Passes over the lanes of a ring when steps come and go, which would cost too much in Python.

They get the arrays of the ring itself, or `plain` ones, so that each is compiled once for all that users may pass. What
one of them changes is changed as a whole: no signal comes in between.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload

__all__ = [
    "APART",
    "BROKEN",
    "WHOLE",
    "arrive",
    "kind_of_block",
    "let_go",
    "number",
    "plain",
    "put_records",
    "rows_ahead",
    "runs",
]

LANE_BITS = 32
"""Episode ids are those of collectors: the ordinal of the episode in its lane, shifted by this, plus the lane."""

WHOLE, APART, BROKEN = 0, 1, 2
"""Kinds of blocks: each step follows from the one before it; some do not, or are not valid; ends contradict others."""

# numba has no types.


def plain(array: np.ndarray) -> np.ndarray:
    """The array, or a copy where it is not contiguous or cannot be written to: such ones would be compiled for anew."""
    return array if array.flags.carray else array.copy()


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def together(heads: Any, rows: int) -> int:
    """The row of the next step of the first lane, behind which those of the others are; -1 where lanes stand apart."""
    for head in heads:
        if head != heads[0]:
            return -1
    return heads[0] * len(heads) % rows  # type: ignore[no-any-return]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def let_go(lanes: Any, counts: Any, bounds: tuple[Any, ...], records: Any, every: Any) -> Any:
    """Move the tails of lanes forward, as far as more steps need their room.

    Args:
        lanes: int64 [n], distinct.
        counts: int64 [n], how many steps of each are to come, no more than fit.
        bounds: (heads, tails, shares), int64 [N] each.
        records: [rows], as `outrider.replay.columns` has them.
        every: whether to return all rows, or only those behind which there is a last observation.

    Returns:
        int64 [m], rows of steps that are not there any more, in order of time; None if there are none.
    """
    heads, tails, shares = bounds
    amounts = np.empty(len(lanes), np.int64)
    for i in range(len(lanes)):
        lane = lanes[i]
        amounts[i] = max(heads[lane] + counts[i] - shares[lane] - tails[lane], 0)
    found = rows_ahead(lanes, amounts, tails, len(records))
    for i in range(len(lanes)):
        tails[lanes[i]] += amounts[i]
    if every:
        return found if len(found) else None
    kept = 0
    for row in found:
        # Written in any case, and counted where it is to stay: a branch would be guessed wrong at each end.
        found[kept] = row
        kept += records[row].final != -1
    return found[:kept] if kept else None


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def rows_ahead(lanes: Any, counts: Any, positions: Any, rows: int) -> Any:
    """The rows of steps of lanes, in order of time.

    Args:
        lanes: int64 [n], distinct.
        counts: int64 [n], how many steps of each.
        positions: int64 [N], of the first of them.
        rows: how many there are.

    Returns:
        int64 [m].
    """
    count = len(positions)
    found, following = np.empty(counts.sum(), np.int64), np.empty(len(lanes), np.int64)
    for i in range(len(lanes)):
        following[i] = (positions[lanes[i]] * count + lanes[i]) % rows
    at = 0
    for offset in range(counts.max()):
        for i in range(len(lanes)):
            if offset < counts[i]:
                # A division for each row would cost more than all else.
                row = following[i]
                following[i] = row + count if row + count < rows else row + count - rows
                found[at] = row
                at += 1
    return found


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def resumed(lanes: Any, stand: tuple[Any, Any], records: Any, ids: tuple[Any, Any]) -> Any:
    """Whether steps have the ids of those that come next where lanes stand: bool [n], or None where all do.

    Args:
        lanes: int64 [n], distinct.
        stand: (heads, open), int64 and bool [N].
        records: [rows], as `outrider.replay.columns` has them.
        ids: episode_id and step of one step of each lane, int64 [n] each.
    """
    heads, open_ = stand
    count, rows = len(heads), len(records)
    found = np.zeros(len(lanes), np.bool_)
    for i in range(len(lanes)):
        lane = lanes[i]
        newest = records[((heads[lane] - 1) * count + lane) % rows]
        found[i] = open_[lane] and newest.episode_id == ids[0][i] and newest.step + 1 == ids[1][i]
    return None if found.all() else found


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def number(lanes: Any, stand: tuple[Any, Any], records: Any, ends: tuple[Any, Any], version: int) -> int:
    """Write ids, version, run and ends of the next step of each lane, where nobody else numbers episodes.

    Args:
        lanes: int64 [n], distinct.
        stand: (heads, open), int64 and bool [N].
        records: [rows], as `outrider.replay.columns` has them.
        ends: terminated and truncated, bool [n] each.
        version: of all of them.

    Returns:
        How many episodes have ended.
    """
    heads, open_ = stand
    count, rows, ended = len(heads), len(records), 0
    for i in range(len(lanes)):
        lane = lanes[i]
        head = heads[lane]
        record = records[(head * count + lane) % rows]
        newest = records[((head - 1) * count + lane) % rows]
        if open_[lane]:
            record.episode_id, record.step, record.run = newest.episode_id, newest.step + 1, newest.run
        else:
            ordinal = (newest.episode_id >> LANE_BITS) + 1 if head else 0
            record.episode_id, record.step, record.run = (ordinal << LANE_BITS) + lane, 0, head
        record.version, record.terminated, record.truncated, record.cut = version, ends[0][i], ends[1][i], False
        ended += ends[0][i] or ends[1][i]
    return ended


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def runs(lanes: Any, counts: Any, stand: tuple[Any, Any], records: Any) -> None:
    """Write where the runs of the next steps of lanes began: behind an end, or where the lane went on.

    Args:
        lanes: int64 [n], distinct.
        counts: int64 [n], how many steps of each; their flags have been written.
        stand: (heads, open), int64 and bool [N].
        records: [rows], as `outrider.replay.columns` has them.
    """
    heads, open_ = stand
    count, rows = len(heads), len(records)
    for i in range(len(lanes)):
        lane = lanes[i]
        head = heads[lane]
        row = (head * count + lane) % rows
        begin = records[row - count if row >= count else row - count + rows].run if open_[lane] else head
        for position in range(head, head + counts[i]):
            record = records[row]
            record.run = begin
            if record.terminated or record.truncated or record.cut:
                begin = position + 1
            row = row + count if row + count < rows else row + count - rows


def _set_reward(record: Any, rewards: Any, t: Any, n: Any) -> None:
    """Write reward [t, n] to a record: compiled for rewards that are numbers and for vectors."""


@overload(_set_reward)  # type: ignore[untyped-decorator,unused-ignore]
def _set_reward_of(record: Any, rewards: Any, t: Any, n: Any) -> Any:  # noqa: ARG001 - the names must be those
    def number(record: Any, rewards: Any, t: Any, n: Any) -> None:
        record.reward = rewards[t, n]

    def vector(record: Any, rewards: Any, t: Any, n: Any) -> None:
        for objective in range(rewards.shape[2]):
            record.reward[objective] = rewards[t, n, objective]

    return number if rewards.ndim == 2 else vector


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def put_records(
    stand: tuple[Any, Any], records: Any, reward: Any, flags: tuple[Any, ...], numbers: tuple[Any, ...]
) -> None:
    """Write the records of the next steps of all lanes, which stand together, and where their runs began.

    Args:
        stand: (heads, open), int64 and bool [N].
        records: [rows], as `outrider.replay.columns` has them.
        reward: float64 [T, N], or [T, N, objectives].
        flags: (terminated, truncated, cut), bool [T, N] each.
        numbers: (episode_id, step, version), int64 [T, N] each.
    """
    heads, open_ = stand
    count, rows, head = len(heads), len(records), heads[0]
    row = head * count % rows
    begins = np.full(count, head)
    for n in range(count):
        if open_[n]:
            begins[n] = records[row - count + n if row >= count else row - count + n + rows].run
    for t in range(len(reward)):
        for n in range(count):
            record = records[row]
            _set_reward(record, reward, t, n)
            record.terminated, record.truncated, record.cut = flags[0][t, n], flags[1][t, n], flags[2][t, n]
            record.episode_id, record.step, record.version = numbers[0][t, n], numbers[1][t, n], numbers[2][t, n]
            record.run = begins[n]
            if record.terminated or record.truncated or record.cut:
                begins[n] = head + t + 1
            row = row + 1 if row + 1 < rows else 0


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def arrive(lanes: Any, counts: Any, stand: tuple[Any, Any], records: Any) -> None:
    """Move the heads of lanes behind steps that have been written; their episodes run unless the last one says so.

    Args:
        lanes: int64 [n], distinct.
        counts: int64 [n], 1 or more.
        stand: (heads, open), int64 and bool [N].
        records: [rows], as `outrider.replay.columns` has them.
    """
    heads, open_ = stand
    for i in range(len(lanes)):
        lane = lanes[i]
        heads[lane] += counts[i]
        newest = records[((heads[lane] - 1) * len(heads) + lane) % len(records)]
        open_[lane] = not (newest.terminated or newest.truncated or newest.cut)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def kind_of_block(flags: tuple[Any, ...], ids: tuple[Any, Any], final_index: Any) -> int:
    """Whether the steps of a rollout follow from one another, and its ends do not contradict each other.

    Args:
        flags: (terminated, truncated, cut, valid), bool [T, N] each.
        ids: episode_id and step, int64 [T, N] each.
        final_index: int64 [E], should be t*N + n of each row that ended or was cut, ascending.

    Returns:
        `WHOLE`, `APART` or `BROKEN`.
    """
    terminated, truncated, cut, valid = flags
    episode, step = ids
    length, count = valid.shape
    kind, finals = WHOLE, 0
    for t in range(length):
        for n in range(count):
            if terminated[t, n] or truncated[t, n] or cut[t, n]:
                if not valid[t, n] or finals == len(final_index) or final_index[finals] != t * count + n:
                    return BROKEN
                finals += 1
            elif t + 1 < length and (episode[t + 1, n] != episode[t, n] or step[t + 1, n] != step[t, n] + 1):
                kind = APART
            if not valid[t, n]:
                kind = APART
    return kind if finals == len(final_index) else BROKEN
