"""Rollouts of all lanes of a ring, which stand together: each column in one copy, or two around the end of the ring."""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider import tree
from outrider.records.rollout import Rollout
from outrider.replay.columns import FLAGS, NUMBERS
from outrider.replay.frames import Frames, Pick
from outrider.replay.gathering import observations
from outrider.replay.ring import Ring
from outrider.tree import Tree

__all__ = ["Blocks", "require_joined"]

WHERE = "extend(Rollout)"


class Blocks:
    """Writes rollouts into a ring.

    Args:
        ring: where to.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        columns = ring.columns
        self._columns = tree.leaves(tuple(columns[name] for name in ("action", "reward", "extras", "info")))
        self._others = [columns[name] for name in (*FLAGS, *NUMBERS)]
        self._obs, self._obs_info = tree.leaves(ring.obs), tree.leaves(columns["obs_info"])

    def extend(self, rollout: Rollout, leaves: tuple[list[Any], list[Any], list[Any]]) -> None:
        """Write a rollout that has a valid step of every lane at each time.

        Args:
            rollout: its lanes are those of the ring, in order.
            leaves: those of action, reward, extras and info; of obs; of obs_info: as the spec says.

        Raises:
            SpecError: a stack is not the one before it, shifted by one frame; nothing has been written then.
        """
        if self._ring.frames is not None:
            self._require_shifted(rollout, self._ring.frames)
        length = self._ring.least_share
        if rollout.length <= length:
            self._write(rollout, leaves)
            return
        for start in range(0, rollout.length, length):
            part = rollout[start : start + length]
            with_last = slice(start, start + part.length + 1)
            steps = [leaf[start : start + part.length] for leaf in leaves[0]]
            obs, obs_info = ([leaf[with_last] for leaf in some] for some in leaves[1:])
            self._write(part, (steps, obs, obs_info))

    def _write(self, rollout: Rollout, leaves: tuple[list[Any], list[Any], list[Any]]) -> None:
        """Write a block, of no more steps than fit into every lane."""
        ring, count, length = self._ring, self._ring.num_envs, rollout.length
        everyone, frames = ring.everyone, self._ring.frames
        first = Pick(tree.take(rollout.obs, 0), everyone)
        ring.join(everyone, (rollout.episode_id[0], rollout.step[0]), first)
        ring.make_room(everyone, length)
        start = int(ring.heads[0]) * count % ring.rows
        columns, obs, obs_info = leaves
        others = [getattr(rollout, name) for name in (*FLAGS, *NUMBERS)]
        steps = zip(
            [*self._columns, *self._others, *self._obs_info],
            [*columns, *others, *[leaf[:length] for leaf in obs_info]],
            strict=True,
        )
        for into, leaf in steps:
            self._copy(into, leaf, start, length * count)
        if frames is not None:
            # Segments begin where nothing runs, and behind each end but that of the last step.
            fresh = np.flatnonzero(np.concatenate([~ring.open, rollout.ended[:-1].reshape(-1)]))
            frames.begin((start + fresh) % ring.rows, Pick(_flat(rollout.obs), fresh))
            obs = [leaf[:, :, -1] if frames.is_stack(number) else leaf for number, leaf in enumerate(obs)]
        for into, leaf in zip(self._obs, obs, strict=True):
            self._copy(into, leaf, start, (length + 1) * count)
        if ring.states is not None and rollout.state is not None:
            every = (start + np.arange(length * count)) % ring.rows
            ring.states.keep(every, rollout.step.reshape(-1), _flat(rollout.state))
        if len(rollout.final_index):
            self._keep_finals((start + rollout.final_index) % ring.rows, rollout)
        self._number_runs(rollout, start)
        runs = ~(rollout.terminated[-1] | rollout.truncated[-1] | rollout.cut[-1])
        ring.arrive(everyone, length, (rollout.episode_id[-1], rollout.step[-1], runs))

    def _number_runs(self, rollout: Rollout, start: int) -> None:
        """Write where the run of each step began: behind the end of another, or where the lane went on."""
        ring, count = self._ring, self._ring.num_envs
        run = np.empty((rollout.length, count), np.int64)
        run[0], ended = ring.runs_ahead(ring.everyone), rollout.ended[:-1]
        positions = ring.heads[0] + np.arange(1, rollout.length)[:, None]
        run[1:] = np.where(ended, positions, run[0]) if np.count_nonzero(ended) else run[0]
        np.maximum.accumulate(run, axis=0, out=run)
        self._copy(ring.columns["run"], run, start, rollout.length * count)
        ring.run[:] = run[-1]

    def _copy(self, into: Any, leaf: Any, start: int, count: int) -> None:
        """Copy a leaf [T, N, ...] to `count` rows from `start` on, which may go around the end of the ring."""
        flat = leaf.reshape(count, *leaf.shape[2:])
        first = self._ring.rows - start
        if count <= first:
            into[start : start + count] = flat
        else:
            into[start:], into[: count - first] = flat[:first], flat[first:]

    def _keep_finals(self, rows: np.ndarray, rollout: Rollout) -> None:
        """Keep the last observations of a rollout, those of the steps in `rows`, as far as they are known."""
        known = _known_finals(rollout)
        if len(known) < len(rows):
            unknown = np.ones(len(rows), np.bool_)
            unknown[known] = False
            self._ring.finals.mark_unknown(rows[unknown])
        self._ring.put_finals(rows[known], Pick(rollout.final_obs, known))

    def _require_shifted(self, rollout: Rollout, frames: Frames) -> None:
        """Refuse a rollout with stacks that are not those before them, shifted by one frame."""
        count = self._ring.num_envs
        obs = _flat(rollout.obs)
        lanes, step = np.tile(rollout.env_id, rollout.length), rollout.step.reshape(-1)
        goes_on = np.flatnonzero(~rollout.ended.reshape(-1))
        who = lanes[goes_on], step[goes_on]
        frames.require_shifted(Pick(obs, goes_on + count), Pick(obs, goes_on), who, WHERE)
        final = _known_finals(rollout)
        ends = rollout.final_index[final]
        frames.require_shifted(Pick(rollout.final_obs, final), Pick(obs, ends), (lanes[ends], step[ends]), WHERE)
        everyone = self._ring.everyone
        require_joined(self._ring, Pick(obs, everyone), everyone, (rollout.episode_id[0], rollout.step[0]))


def require_joined(ring: Ring, chosen: Pick, lanes: np.ndarray, ids: tuple[np.ndarray, np.ndarray]) -> None:
    """Refuse first observations of `lanes`, with these ids and indices, that do not go on from the last stacks.

    Raises:
        SpecError: names the lane and the step.
    """
    goes_on = np.flatnonzero(ring.continues(lanes, ids, chosen))
    if ring.frames is not None and len(goes_on):
        joined = lanes[goes_on]
        newest = Pick(observations(ring, ring.row_of(joined, ring.heads[joined] - 1)), np.arange(len(joined)))
        who = joined, ids[1][goes_on] - 1
        ring.frames.require_shifted(Pick(chosen.obs, chosen.rows[goes_on]), newest, who, "extend(record)")


def _known_finals(rollout: Rollout) -> np.ndarray:
    """Which of the last observations of a rollout are known: int64 [n]."""
    if rollout.blind is None:
        return np.arange(len(rollout.final_index))
    return np.flatnonzero(~rollout.blind.reshape(-1)[rollout.final_index])


def _flat(columns: Tree) -> Tree:
    """Make one axis of time and lane; a view of a contiguous array."""
    return tree.map(lambda leaf: leaf.reshape((leaf.shape[0] * leaf.shape[1], *leaf.shape[2:])), columns)
