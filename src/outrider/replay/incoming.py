"""From records to the rows of a ring: whole blocks in one copy where all lanes stand together, row by row elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider import tree
from outrider.errors import ConfigError, SpecError, explain
from outrider.records import arrays
from outrider.records.episodes import Episodes
from outrider.records.rollout import Rollout
from outrider.records.steps import Steps
from outrider.replay.frames import Frames, Pick
from outrider.replay.gathering import observations
from outrider.replay.ring import FLAGS, NUMBERS, Ring
from outrider.replay.sparse import rows_of
from outrider.spec import check_batch
from outrider.tree import Tree

__all__ = ["Writer"]

COLUMNS = ("action", "reward", *FLAGS, *NUMBERS, "extras", "info", "obs_info")

Spans = list[tuple[Any, Any]]
"""Pairs of (rows of the ring, rows of what comes in), slices or int64 arrays."""


class Writer:
    """Writes records into a ring, in order; a lane of the ring is an `env_id`.

    Args:
        ring: where to.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._count = ring.num_envs
        self._everyone = ring.everyone
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
            self._check(record, (record.length, record.num_envs), record.obs, record.length + 1)
            if self._is_block(record):
                if self._ring.frames is not None:
                    self._require_shifted_block(record, self._ring.frames)
                length = self._ring.least_share
                for start in range(0, record.length, length):
                    self._block(record if record.length <= length else record[start : start + length])
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

    def _check(self, record: Any, leading: tuple[int, ...], obs: Tree, obs_rows: int) -> None:
        spec, where = self._ring.spec, f"extend({type(record).__name__})"
        if not isinstance(record.reward, np.ndarray):
            raise SpecError(
                explain(
                    expected="a record of NumPy arrays",
                    found="tensors",
                    where=where,
                    fix="extend with the record as it was before `.torch()`",
                )
            )
        names = ("action", "reward", "extras", "info")
        specs = {name: getattr(spec, name) for name in names}
        check_batch(specs, {name: getattr(record, name) for name in names}, leading, where)
        with_last = (obs_rows, *leading[1:])
        check_batch({"obs": spec.obs}, {"obs": obs}, with_last, where)
        if self._ring.states is not None:
            state = record.state_rows if isinstance(record, Steps) else record.state
            if state is not None:
                check_batch({"state": spec.state}, {"state": state}, with_last, where)
        infos = leading if isinstance(record, Steps) else with_last
        check_batch({"obs_info": spec.obs_info}, {"obs_info": record.obs_info}, infos, where)

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
        self.lanes.update(zip(new, range(len(self.lanes), self._count), strict=False))
        return np.array([self.lanes[number] for number in numbers.tolist()], np.int64)[inverse]

    @property
    def lane_numbers(self) -> list[tuple[int, int]] | None:
        """Pairs of env_id and lane, once steps have come; may be set to what it was in another buffer."""
        return None if self.lanes is None else list(self.lanes.items())

    @lane_numbers.setter
    def lane_numbers(self, pairs: list[tuple[int, int]] | None) -> None:
        self.lanes = None if pairs is None else {int(env_id): int(lane) for env_id, lane in pairs}
        self._are_same = bool(pairs) and all(env_id == lane for env_id, lane in pairs or ())

    # -- whole blocks ------------------------------------------------------------------------------------------------

    def _is_block(self, rollout: Rollout) -> bool:
        """Whether it has a valid step of every lane, in order, at each time, and all lanes stand together."""
        heads = self._ring.heads
        if rollout.num_envs != self._count or not rollout.valid.all() or (heads != heads[0]).any():
            return False
        return bool((self._lanes_of(rollout.env_id) == self._everyone).all())

    def _block(self, rollout: Rollout) -> None:
        """Write a block, of no more steps than fit into every lane."""
        ring, count = self._ring, self._count
        ring.join(self._everyone, rollout.episode_id[0], rollout.step[0])
        ring.make_room(self._everyone, rollout.length)
        start = int(ring.heads[0]) * count % ring.rows
        spans = self._around(start, rollout.length * count)
        for name in COLUMNS:
            column = getattr(rollout, name)
            if name == "obs_info":
                column = tree.take(column, slice(0, rollout.length))
            _copy(ring.columns[name], _flat(column), spans)
        obs, ended = _flat(rollout.obs), rollout.ended
        if ring.frames is not None:
            # Segments begin where nothing runs, and behind each end but that of the last step.
            fresh = np.flatnonzero(np.concatenate([~ring.open, ended[:-1].reshape(-1)]))
            ring.frames.begin((start + fresh) % ring.rows, Pick(obs, fresh))
            obs = ring.frames.all_newest(obs)
        _copy(ring.obs, obs, self._around(start, (rollout.length + 1) * count))
        if ring.states is not None and rollout.state is not None:
            every = (start + np.arange(rollout.length * count)) % ring.rows
            ring.states.keep(every, rollout.step.reshape(-1), _flat(rollout.state))
        rows = (start + rollout.final_index) % ring.rows
        if len(rows):
            self._keep_finals(rows, rollout)
        ring.arrive(self._everyone, rollout.length, (rollout.episode_id[-1], rollout.step[-1], ~ended[-1]))

    def _keep_finals(self, rows: np.ndarray, rollout: Rollout) -> None:
        """Keep the last observations of a rollout, those of the steps in `rows`, as far as they are known."""
        known = _known_finals(rollout)
        if len(known) < len(rows):
            unknown = np.ones(len(rows), np.bool_)
            unknown[known] = False
            self._ring.finals.mark_unknown(rows[unknown])
        self._ring.put_finals(rows[known], Pick(rollout.final_obs, known))

    def _require_shifted_block(self, rollout: Rollout, frames: Frames) -> None:
        """Refuse a rollout of all lanes with stacks that are not those before them, shifted by one frame.

        Raises:
            SpecError: there is one.
        """
        where, count = "extend(Rollout)", self._count
        obs = _flat(rollout.obs)
        lanes, step = np.tile(rollout.env_id, rollout.length), rollout.step.reshape(-1)
        goes_on = np.flatnonzero(~rollout.ended.reshape(-1))
        who = lanes[goes_on], step[goes_on]
        frames.require_shifted(Pick(obs, goes_on + count), Pick(obs, goes_on), who, where)
        final = _known_finals(rollout)
        ends = rollout.final_index[final]
        who = lanes[ends], step[ends]
        frames.require_shifted(Pick(rollout.final_obs, final), Pick(obs, ends), who, where)
        self._require_joined(Pick(obs, self._everyone), self._everyone, (rollout.episode_id[0], rollout.step[0]), where)

    def _require_joined(self, chosen: Pick, lanes: np.ndarray, ids: tuple[np.ndarray, np.ndarray], where: str) -> None:
        """Refuse first observations of `lanes`, with these ids and indices, that do not go on from the last stacks."""
        ring = self._ring
        goes_on = np.flatnonzero(ring.continues(lanes, *ids))
        if ring.frames is not None and len(goes_on):
            joined = lanes[goes_on]
            newest = Pick(observations(ring, ring.row_of(joined, ring.heads[joined] - 1)), np.arange(len(joined)))
            who = joined, ids[1][goes_on] - 1
            ring.frames.require_shifted(Pick(chosen.obs, chosen.rows[goes_on]), newest, who, where)

    def _around(self, start: int, count: int) -> Spans:
        """Where `count` rows from `start` on stand, which may go around the end of the ring."""
        first = min(count, self._ring.rows - start)
        spans: Spans = [(slice(start, start + first), slice(0, first))]
        if first < count:
            spans.append((slice(0, count - first), slice(first, count)))
        return spans

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
        self._require_joined(Pick(steps.obs_rows, used[firsts]), present, ids, where)

    def _piece(self, steps: Steps, lanes: np.ndarray, order: np.ndarray) -> None:
        """Write the steps `order`, int64 [n], lane after lane and each lane's in order of time."""
        ring = self._ring
        lane, episode, step = lanes[order], steps.episode_id[order], steps.step[order]
        present, firsts, counts = np.unique(lane, return_index=True, return_counts=True)
        lasts = firsts + counts - 1
        ring.join(present, episode[firsts], step[firsts])
        ring.make_room(present, counts)
        ranks = np.arange(len(order)) - np.repeat(firsts, counts)
        rows = ring.row_of(lane, ring.heads[lane] + ranks)
        for name in COLUMNS:
            _copy(ring.columns[name], getattr(steps, name), [(rows, order)])
        used = steps.obs_rows_used()[order]
        ring.put_obs(rows, Pick(steps.obs_rows, used))
        if ring.states is not None and steps.state_rows is not None:
            ring.states.keep(rows, step, steps.state_rows, used)
        ended = steps.ended[order]
        # Whatever is not continued by the step behind it is cut, but for the newest of a lane.
        stops = _stops(lane, episode, step, ended)
        if ring.frames is not None:
            begins = np.roll(stops, 1)
            begins[firsts] = ~ring.open[present]
            ring.frames.begin(rows[begins], Pick(steps.obs_rows, used[begins]))
        stops[lasts] = ended[lasts]
        ring.columns["cut"][rows[stops & ~ended]] = True
        self._finals(steps, order[stops], rows[stops])
        runs = lasts[~ended[lasts]]
        if len(runs):
            behind = ring.row_of(lane[runs], ring.heads[lane[runs]] + counts[~ended[lasts]])
            ring.put_obs(behind, Pick(steps[order[runs]].next_obs, np.arange(len(runs))))
        ring.arrive(present, counts, (episode[lasts], step[lasts], ~ended[lasts]))

    def _finals(self, steps: Steps, chosen: np.ndarray, rows: np.ndarray) -> None:
        """Keep what was seen after the steps `chosen`, which stand in `rows`."""
        if steps.blind is not None:
            blind = steps.blind[chosen]
            self._ring.finals.mark_unknown(rows[blind])
            chosen, rows = chosen[~blind], rows[~blind]
        if len(rows):
            self._ring.put_finals(rows, Pick(steps[chosen].next_obs, np.arange(len(rows))))


def _known_finals(rollout: Rollout) -> np.ndarray:
    """Which of the last observations of a rollout are known: int64 [n]."""
    if rollout.blind is None:
        return np.arange(len(rollout.final_index))
    return np.flatnonzero(~rollout.blind.reshape(-1)[rollout.final_index])


def _stops(lane: np.ndarray, episode: np.ndarray, step: np.ndarray, ended: np.ndarray) -> np.ndarray:
    """Which of these steps, one lane after the other, the one behind it does not continue: bool [n]."""
    stops = np.ones(len(lane), np.bool_)
    goes_on = (lane[1:] == lane[:-1]) & (episode[1:] == episode[:-1]) & (step[1:] == step[:-1] + 1)
    stops[:-1] = ended[:-1] | ~goes_on
    return stops


def _flat(columns: Tree) -> Tree:
    """Make one axis of time and lane; a view of a contiguous array."""
    return tree.map(lambda leaf: leaf.reshape((leaf.shape[0] * leaf.shape[1], *leaf.shape[2:])), columns)


def _copy(target: Tree, source: Tree, spans: Spans) -> None:
    """Copy rows of each leaf of `source` to rows of `target`."""

    def copy(into: Any, out_of: Any) -> None:
        for to, rows in spans:
            into[to] = out_of[rows] if isinstance(rows, slice) else rows_of(out_of, rows)

    tree.map(copy, target, source)
