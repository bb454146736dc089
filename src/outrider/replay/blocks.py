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

__all__ = ["PER_STEP", "Blocks", "require_joined"]

APART = ("action", "extras", "info")
TOGETHER = ("reward", *FLAGS, *NUMBERS)
PER_STEP = (*APART, *TOGETHER)
"""The columns of steps: those in arrays of their own, and those in records."""

WHERE = "extend(Rollout)"


class Blocks:
    """Writes rollouts into a ring.

    Args:
        ring: where to.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._depth = ring.rows // ring.num_envs
        self._columns, self._obs, self._obs_info = (
            [self._by_time(leaf) for leaf in tree.leaves(leaves)]
            for leaves in (tuple(ring.columns[name] for name in APART), ring.obs, ring.columns["obs_info"])
        )

    def _by_time(self, leaf: Any) -> tuple[Any, int]:
        """A column as a view [rows of a lane, N, ...] and 1; or as it is, if it is ragged, and N."""
        count = self._ring.num_envs
        if isinstance(leaf, np.ndarray):
            return leaf.reshape(self._depth, count, *leaf.shape[1:]), 1
        return leaf, count

    def extend(self, rollout: Rollout, leaves: tuple[list[Any], list[Any], list[Any]]) -> None:
        """Write a rollout that has a valid step of every lane at each time, each of which follows from the one before.

        Args:
            rollout: its lanes are those of the ring, in order, which stand together.
            leaves: those of `PER_STEP`; of obs; of obs_info: as the spec says.

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
        ring, length, (columns, obs, obs_info) = self._ring, rollout.length, leaves
        everyone, each = ring.everyone, ring.ones * length
        if ring.frames is not None:
            obs = [leaf[:, :, -1] if ring.frames.is_stack(number) else leaf for number, leaf in enumerate(obs)]
        ring.join(everyone, (rollout.episode_id[0], rollout.step[0]), [leaf[0] for leaf in obs])
        ring.make_room(everyone, each)
        start = ring.start
        position = start // ring.num_envs
        apart, together = columns[: -len(TOGETHER)], columns[-len(TOGETHER) :]
        self._copy(self._columns, apart, position, length)
        self._copy(self._obs_info, [leaf[:length] for leaf in obs_info], position, length)
        self._copy(self._obs, obs, position, length + 1)
        ring.put_records(together)
        if ring.frames is not None:
            # Segments begin where nothing runs, and behind each end but that of the last step.
            fresh = np.flatnonzero(np.concatenate([~ring.open, rollout.ended[:-1].reshape(-1)]))
            ring.frames.begin((start + fresh) % ring.rows, Pick(_flat(rollout.obs), fresh))
        if ring.states is not None and rollout.state is not None:
            every = (start + np.arange(length * ring.num_envs)) % ring.rows
            ring.states.keep(every, rollout.step.reshape(-1), _flat(rollout.state))
        if len(rollout.final_index):
            self._keep_finals((start + rollout.final_index) % ring.rows, rollout)
        ring.arrive(everyone, each)

    def _copy(self, columns: list[tuple[Any, int]], leaves: list[Any], position: int, length: int) -> None:
        """Copy leaves [length, N, ...] to a position on, which may go around the end."""
        stop, over = position + length, position + length - self._depth
        for (into, unit), leaf in zip(columns, leaves, strict=True):
            if over <= 0:
                into[position * unit : stop * unit] = leaf
            else:
                into[position * unit :], into[: over * unit] = leaf[:-over], leaf[-over:]

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
    found = ring.continues(lanes, ids, tree.leaves(ring.stored(chosen)))
    goes_on = np.arange(len(lanes)) if found is None else np.flatnonzero(found)
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
