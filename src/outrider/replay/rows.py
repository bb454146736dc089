"""Steps in any order, row by row: those of a lane that do not continue each other are of different episodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider import tree
from outrider.records import arrays
from outrider.records.steps import Steps
from outrider.replay.blocks import PER_STEP, require_joined
from outrider.replay.checking import columns_of, infos_of
from outrider.replay.frames import Frames, Pick
from outrider.replay.ring import Ring
from outrider.replay.sparse import rows_of, same_rows
from outrider.tree import Tree

__all__ = ["Rows"]


class Rows:
    """Writes steps into a ring.

    Args:
        ring: where to.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring

    def extend(self, steps: Steps, lanes: np.ndarray) -> None:
        """Write steps, in pieces of which none has more steps of a lane than fit.

        Args:
            steps: valid ones, as the spec says.
            lanes: int64 [n], where each goes to.

        Raises:
            SpecError: a stack is not the one before it, shifted by one frame; nothing has been written then.
        """
        order = np.argsort(lanes, kind="stable")
        counts = np.bincount(lanes, minlength=self._ring.num_envs)
        if self._ring.frames is not None:
            self._require_shifted_steps(steps, lanes, order, self._ring.frames)
        rank = np.arange(len(lanes)) - np.repeat(np.cumsum(counts) - counts, counts)
        most = self._ring.least_share
        for start in range(0, int(counts.max()), most):
            piece = order if counts.max() <= most else order[(rank >= start) & (rank < start + most)]
            self._piece(steps, lanes, piece)

    def _require_shifted_steps(self, steps: Steps, lanes: np.ndarray, order: np.ndarray, frames: Frames) -> None:
        """Refuse steps with stacks that are not those before them, shifted by one frame; `order` is that of `_piece`.

        Raises:
            SpecError: there is one.
        """
        where = "extend(Steps)"
        env_id, episode, step = (
            column[order] for column in (arrays.to_numpy(steps.env_id), steps.episode_id, steps.step)
        )
        used, lane, following = steps.obs_rows_used()[order], lanes[order], steps.next_index[order]
        stops = _stops(lane, episode, step, steps.ended[order])
        self._stop_at_others(stops, steps, order, used)
        goes_on = np.flatnonzero(~stops)
        who = env_id[goes_on], step[goes_on]
        frames.require_shifted(Pick(steps.obs_rows, used[goes_on + 1]), Pick(steps.obs_rows, used[goes_on]), who, where)
        if steps.blind is not None:
            stops &= ~steps.blind[order]
        for table, these in ((steps.obs_rows, following >= 0), (steps.final_obs, following < 0)):
            last = np.flatnonzero(stops & these)
            who, rows = (env_id[last], step[last]), np.where(following < 0, ~following, following)[last]
            frames.require_shifted(Pick(table, rows), Pick(steps.obs_rows, used[last]), who, where)
        present, firsts = np.unique(lane, return_index=True)
        ids = episode[firsts], step[firsts]
        require_joined(self._ring, Pick(steps.obs_rows, used[firsts]), present, ids)

    def _piece(self, steps: Steps, lanes: np.ndarray, order: np.ndarray) -> None:
        """Write the steps `order`, int64 [n], lane after lane and each lane's in order of time."""
        ring = self._ring
        lane, episode, step = lanes[order], steps.episode_id[order], steps.step[order]
        present, firsts, counts = np.unique(lane, return_index=True, return_counts=True)
        lasts = firsts + counts - 1
        used = steps.obs_rows_used()[order]
        first = tree.leaves(ring.stored(Pick(steps.obs_rows, used[firsts])))
        ring.join(present, (episode[firsts], step[firsts]), first)
        ring.make_room(present, counts)
        ranks = np.arange(len(order)) - np.repeat(firsts, counts)
        rows = ring.row_of(lane, ring.heads[lane] + ranks)
        columns = columns_of(steps, ring.spec) | {"obs_info": infos_of(steps.obs_info, ring.spec.obs_info)}
        for name in (*PER_STEP, "obs_info"):
            _copy(ring.columns[name], columns[name], rows, order)
        ring.put_obs(rows, Pick(steps.obs_rows, used))
        if ring.states is not None and steps.state_rows is not None:
            ring.states.keep(rows, step, steps.state_rows, used)
        ended = steps.ended[order]
        # Whatever is not continued by the step behind it is cut, but for the newest of a lane.
        stops = _stops(lane, episode, step, ended)
        self._stop_at_others(stops, steps, order, used)
        if ring.frames is not None:
            begins = np.roll(stops, 1)
            begins[firsts] = ~ring.open[present]
            ring.frames.begin(rows[begins], Pick(steps.obs_rows, used[begins]))
        stops[lasts] = ended[lasts]
        ring.columns["cut"][rows[stops & ~ended]] = True
        ring.number_runs(present, counts)
        self._finals(steps, order[stops], rows[stops])
        runs = lasts[~ended[lasts]]
        if len(runs):
            behind = ring.row_of(lane[runs], ring.heads[lane[runs]] + counts[~ended[lasts]])
            ring.put_obs(behind, Pick(steps[order[runs]].next_obs, np.arange(len(runs))))
        ring.arrive(present, counts)

    @staticmethod
    def _stop_at_others(stops: np.ndarray, steps: Steps, order: np.ndarray, used: np.ndarray) -> None:
        """Let stop, too, what is followed by another observation than it led to: ids of two collectors are the same."""
        apart = np.flatnonzero(~stops[:-1] & (steps.next_index[order[:-1]] != used[1:]))
        if len(apart):
            ours = tree.leaves(steps[order[apart]].next_obs)
            theirs = [rows_of(leaf, used[apart + 1]) for leaf in tree.leaves(steps.obs_rows)]
            same = same_rows(ours, theirs)
            if same is not None:
                stops[apart[~same]] = True

    def _finals(self, steps: Steps, chosen: np.ndarray, rows: np.ndarray) -> None:
        """Keep what was seen after the steps `chosen`, which stand in `rows`."""
        if steps.blind is not None:
            blind = steps.blind[chosen]
            self._ring.finals.mark_unknown(rows[blind])
            chosen, rows = chosen[~blind], rows[~blind]
        if len(rows):
            self._ring.put_finals(rows, Pick(steps[chosen].next_obs, np.arange(len(rows))))


def _stops(lane: np.ndarray, episode: np.ndarray, step: np.ndarray, ended: np.ndarray) -> np.ndarray:
    """Which of these steps, one lane after the other, the one behind it does not continue: bool [n]."""
    stops = np.ones(len(lane), np.bool_)
    goes_on = (lane[1:] == lane[:-1]) & (episode[1:] == episode[:-1]) & (step[1:] == step[:-1] + 1)
    stops[:-1] = ended[:-1] | ~goes_on
    return stops


def _copy(target: Tree, source: Tree, to: np.ndarray, rows: np.ndarray) -> None:
    """Copy rows of each leaf of `source` to rows `to` of `target`."""

    def copy(into: Any, out_of: Any) -> None:
        into[to] = rows_of(out_of, rows)

    tree.map(copy, target, source)
