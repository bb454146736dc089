"""Cutting steps into contiguous runs of one episode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from outrider.records import arrays
from outrider.records.arrays import IntArray
from outrider.records.episodes import Episodes

if TYPE_CHECKING:
    from outrider.records.steps import Steps

__all__ = ["by_appearance", "cut"]

_COLUMNS = (
    *("action", "reward", "terminated", "truncated", "cut", "step", "version", "blind"),
    *("extras", "info", "obs_info"),
)


def _starts(steps: Steps, order: IntArray) -> IntArray:
    """Where a new run starts in the rows taken in `order`."""
    env, episode, step, ended = (
        arrays.to_numpy(column)[order] for column in (steps.env_id, steps.episode_id, steps.step, steps.ended)
    )
    new = np.ones(len(order), np.bool_)
    new[1:] = (env[1:] != env[:-1]) | (episode[1:] != episode[:-1]) | (step[1:] != step[:-1] + 1) | ended[:-1]
    return np.flatnonzero(new)


def by_appearance(steps: Steps) -> IntArray:
    """The order of valid rows that puts each run together, the runs in order of their first row."""
    valid = np.flatnonzero(arrays.to_numpy(steps.valid))
    keys = [arrays.to_numpy(column)[valid] for column in (steps.episode_id, steps.env_id)]
    order = valid[np.lexsort(keys)]  # stable: the rows of one episode stay in their order
    starts = _starts(steps, order)
    lengths = np.diff(starts, append=len(order))
    appearance = np.argsort(order[starts], kind="stable")
    return order[arrays.ranges(starts[appearance], lengths[appearance])]


def cut(steps: Steps, order: IntArray) -> Episodes:
    """Make `Episodes` of the rows taken in `order`: a new one where lane, episode or the count of steps breaks."""
    starts = _starts(steps, order)
    lengths = np.diff(starts, append=len(order))
    rows = arrays.like(steps.reward, order)
    columns = {name: arrays.gather(getattr(steps, name), rows) for name in _COLUMNS}
    firsts = arrays.like(steps.reward, order[starts])
    lookup = arrays.like(steps.reward, _observations(steps, order, starts + lengths))
    return Episodes(
        **columns,
        episode_id=steps.episode_id[firsts],
        env_id=steps.env_id[firsts],
        lengths=arrays.like(steps.reward, lengths),
        obs=arrays.gather_split(steps.obs_rows, steps.final_obs, lookup),
        state=arrays.gather_split(steps.state_rows, steps.final_state, lookup),
    )


def _observations(steps: Steps, order: IntArray, stops: IntArray) -> IntArray:
    """Rows of obs (as in `next_index`) of the T_i + 1 observations of each run: those acted upon, and the last next."""
    acted = steps.obs_rows_used()[order]
    last = arrays.to_numpy(steps.next_index)[order][stops - 1]
    return np.insert(acted, stops, last)
