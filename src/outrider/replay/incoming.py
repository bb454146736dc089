"""From records to the rows of a ring: rollouts as blocks where all lanes stand together, row by row elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider import tree
from outrider.errors import ConfigError, SpecError, explain
from outrider.records import arrays
from outrider.records.episodes import Episodes
from outrider.records.rollout import Rollout
from outrider.records.steps import Steps
from outrider.replay.blocks import Blocks, require_joined
from outrider.replay.columns import FLAGS, NUMBERS
from outrider.replay.frames import Frames, Pick
from outrider.replay.leaves import Leaves
from outrider.replay.ring import Ring
from outrider.replay.sparse import are_alike, rows_of, same_rows
from outrider.spec import check_batch
from outrider.tree import Tree

__all__ = ["Writer"]

CHECKED = ("action", "reward", "extras", "info")

COLUMNS = ("action", "reward", *FLAGS, *NUMBERS, "extras", "info", "obs_info")


class Writer:
    """Writes records into a ring, in order; a lane of the ring is an `env_id`.

    Args:
        ring: where to.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._count = ring.num_envs
        self._blocks = Blocks(ring)
        spec = ring.spec
        self._columns = Leaves({name: getattr(spec, name) for name in CHECKED})
        self._obs, self._obs_info = Leaves(spec.obs), Leaves(spec.obs_info)
        # The lanes of the ring by env_id, once the first steps have come, and whether these are the same numbers.
        self.lanes: dict[int, int] | None = None
        self._are_same = False

    def extend(self, record: Rollout | Steps | Episodes) -> int:
        """Write all steps of a record; return how many.

        Raises:
            SpecError: its columns are not those of the ring; nothing has been written then.
            ConfigError: it has steps of more lanes than the ring, or is no record.
        """
        if isinstance(record, Rollout):
            found = self._check(record, (record.length, record.num_envs), record.obs, record.length + 1)
            if self._is_block(record):
                self._blocks.extend(record, found)
                return record.length * record.num_envs
            record = record.flatten()
        elif isinstance(record, Episodes):
            record = record.flatten()
        if not isinstance(record, Steps):
            raise ConfigError(
                explain(
                    expected="a Rollout, Steps or Episodes",
                    found=type(record).__name__,
                    where="extend(record)",
                    fix="pass what a collector or a dataset returns, or use add(...) for the columns of one step",
                )
            )
        valid = arrays.to_numpy(record.valid)
        steps = record if valid.all() else record[valid]
        if len(steps):
            rows = len(tree.leaves(steps.obs_rows)[0])
            self._check(steps, (len(steps),), steps.obs_rows, rows)
            self._steps(steps, self._lanes_of(arrays.to_numpy(steps.env_id)))
        return len(steps)

    def _check(
        self, record: Rollout | Steps, leading: tuple[int, ...], obs: Tree, obs_rows: int
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """The leaves of a record: of `CHECKED`, of observations and of obs_info."""
        where = f"extend({type(record).__name__})"
        if not isinstance(record.reward, np.ndarray):
            raise SpecError(
                explain(
                    expected="a record of NumPy arrays",
                    found="tensors",
                    where=where,
                    fix="extend with the record as it was before `.torch()`",
                )
            )
        columns = self._columns.of({name: self._column(record, name) for name in CHECKED}, leading, where)
        with_last = (obs_rows, *leading[1:])
        try:
            found = self._obs.of(obs, with_last, where)
        except SpecError:
            # With the name of the column.
            check_batch({"obs": self._ring.spec.obs}, {"obs": obs}, with_last, where)
            raise
        if self._ring.states is not None:
            state = record.state_rows if isinstance(record, Steps) else record.state
            if state is not None:
                check_batch({"state": self._ring.spec.state}, {"state": state}, with_last, where)
        infos = leading if isinstance(record, Steps) else with_last
        return columns, found, self._obs_info.of(self._column(record, "obs_info"), infos, f"{where} at 'obs_info'")

    def _column(self, record: Rollout | Steps, name: str) -> Tree:
        """A column of a record; of infos those that the ring has: which there are, and their dtypes, may change."""
        column = getattr(record, name)
        if name not in ("info", "obs_info"):
            return column
        return {key: column[key] for key in getattr(self._ring.spec, name) if key in column}

    def _is_block(self, rollout: Rollout) -> bool:
        """Whether it has a valid step of every lane, in order, at each time, and all lanes stand together."""
        count, valid, everyone = self._count, rollout.valid, self._ring.everyone
        if rollout.num_envs != count or np.count_nonzero(valid) < valid.size or not are_alike(self._ring.heads):
            return False
        if not self._are_same:
            return bool((self._lanes_of(rollout.env_id) == everyone).all())
        return bool(np.count_nonzero(rollout.env_id == everyone) == count)

    def _lanes_of(self, env_id: np.ndarray) -> np.ndarray:
        """The lanes of these env_id, int64 [n].

        They are the same numbers if those that come first fit, and otherwise given in the order in which they come.
        """
        if self.lanes is None:
            self.lanes = {n: n for n in range(self._count)} if 0 <= env_id.min() <= env_id.max() < self._count else {}
            self._are_same = bool(self.lanes)
        if self._are_same and 0 <= env_id.min() <= env_id.max() < self._count:
            return env_id
        assert self.lanes is not None
        numbers, inverse = np.unique(env_id, return_inverse=True)
        new = [number for number in numbers.tolist() if number not in self.lanes]
        if len(self.lanes) + len(new) > self._count:
            raise ConfigError(
                explain(
                    expected=f"steps of {self._count} lanes at most",
                    found=f"env_id {new[:5]} besides {sorted(self.lanes)[:5]}...",
                    where="extend(record)",
                    fix="make the buffer with a spec of as many lanes (num_envs) as there are env_id",
                )
            )
        for number in new:
            lane = self.lanes[number] = len(self.lanes)
            self._ring.env_ids[lane] = number
        return np.array([self.lanes[number] for number in numbers.tolist()], np.int64)[inverse]

    @property
    def lane_numbers(self) -> list[tuple[int, int]] | None:
        """Pairs of env_id and lane, once steps have come; may be set to what it was in another buffer."""
        return None if self.lanes is None else list(self.lanes.items())

    @lane_numbers.setter
    def lane_numbers(self, pairs: list[tuple[int, int]] | None) -> None:
        self.lanes = None if pairs is None else {int(env_id): int(lane) for env_id, lane in pairs}
        for env_id, lane in pairs or ():
            self._ring.env_ids[lane] = env_id
        self._are_same = bool(pairs) and all(env_id == lane for env_id, lane in pairs or ())

    # -- row by row --------------------------------------------------------------------------------------------------

    def _steps(self, steps: Steps, lanes: np.ndarray) -> None:
        """Write steps, in pieces of which none has more steps of a lane than fit."""
        order = np.argsort(lanes, kind="stable")
        counts = np.bincount(lanes, minlength=self._count)
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
        ring.join(present, (episode[firsts], step[firsts]), Pick(steps.obs_rows, used[firsts]))
        ring.make_room(present, counts)
        ranks = np.arange(len(order)) - np.repeat(firsts, counts)
        rows = ring.row_of(lane, ring.heads[lane] + ranks)
        for name in COLUMNS:
            _copy(ring.columns[name], self._column(steps, name), rows, order)
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
        self._number_runs(rows, stops, (present, firsts), ranks)
        stops[lasts] = ended[lasts]
        ring.columns["cut"][rows[stops & ~ended]] = True
        self._finals(steps, order[stops], rows[stops])
        runs = lasts[~ended[lasts]]
        if len(runs):
            behind = ring.row_of(lane[runs], ring.heads[lane[runs]] + counts[~ended[lasts]])
            ring.put_obs(behind, Pick(steps[order[runs]].next_obs, np.arange(len(runs))))
        ring.arrive(present, counts, (episode[lasts], step[lasts], ~ended[lasts]))

    def _number_runs(
        self, rows: np.ndarray, stops: np.ndarray, lanes: tuple[np.ndarray, np.ndarray], ranks: np.ndarray
    ) -> None:
        """Write where the run of each step began: behind a stop, or where its lane went on."""
        ring, (present, firsts) = self._ring, lanes
        begins = np.zeros(len(rows), np.int64)
        begins[firsts] = ring.runs_ahead(present)
        behind = np.flatnonzero(stops[:-1] & (ranks[1:] > 0)) + 1
        counts = np.diff(np.append(firsts, len(rows)))
        begins[behind] = (np.repeat(ring.heads[present], counts) + ranks)[behind]
        known = np.zeros(len(rows), np.int64)
        known[firsts], known[behind] = firsts, behind
        ring.columns["run"][rows] = begins = begins[np.maximum.accumulate(known)]
        ring.run[present] = begins[firsts + counts - 1]

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
