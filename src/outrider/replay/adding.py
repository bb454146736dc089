"""Single steps of hand-written loops: one of each lane, or of some of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider import tree
from outrider.errors import ConfigError, SpecError, explain
from outrider.replay.frames import Pick
from outrider.replay.gathering import observations
from outrider.replay.leaves import Leaves
from outrider.replay.ring import Ring
from outrider.replay.sparse import as_array, same_rows
from outrider.spec import check_batch
from outrider.tree import Tree

__all__ = ["Adder"]

LANE_BITS = 32
"""Episode ids are those of collectors: the ordinal of the episode in its lane, shifted by this, plus the lane."""

WHERE = "add(...)"

COLUMNS = ("action", "extras", "info", "obs_info")

FLOAT64, INT64, BOOL = np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.bool_)


class Adder:
    """Writes one step of each of some lanes at a time, and numbers episodes and steps itself.

    Args:
        ring: where to.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        spec, columns = ring.spec, {name: getattr(ring.spec, name) for name in COLUMNS}
        self._given = Leaves({"obs": spec.obs, "next_obs": spec.obs, **columns})
        self._obs = tree.leaves(ring.obs)
        self._columns = tree.leaves(tuple(ring.columns[name] for name in COLUMNS))

    def add(self, obs: tuple[Tree, Tree], columns: dict[str, Tree], flags: tuple[Any, Any], env_id: Any) -> int:
        """Write a step of each lane in `env_id`, or of all where that is None; return how many.

        Args:
            obs: the observations acted upon and those behind the step, trees [n, ...].
            columns: "action", "reward", "version" and whatever else the spec has; "state" may be left out.
            flags: terminated and truncated, bool [n].
            env_id: distinct lanes, int [n], or None.

        Raises:
            SpecError: a column is not as the spec says; nothing has been written then.
            ConfigError: the lanes are none.
        """
        ring = self._ring
        lanes = ring.everyone if env_id is None else self._lanes(env_id)
        count = len(lanes)
        reward = _column(columns.pop("reward"), FLOAT64, (count, *ring.spec.reward.shape), "reward")
        version = _column(columns.pop("version"), INT64, (count,), "version")
        terminated = _column(flags[0], BOOL, (count,), "terminated")
        truncated = _column(flags[1], BOOL, (count,), "truncated")
        state = columns.pop("state", None)
        if state is not None:
            check_batch({"state": ring.spec.state}, {"state": state}, (count,), WHERE)
        leaves = self._given.of({"obs": obs[0], "next_obs": obs[1], **columns}, (count,), WHERE)
        if ring.frames is not None:
            before, behind = (Pick(one, np.arange(count)) for one in obs)
            ring.frames.require_shifted(behind, before, (lanes, ring.next_ids(lanes, LANE_BITS)[1]), WHERE)
        rows, following = ring.rows_ahead(lanes)
        resumes = self._continues(rows, leaves)
        if resumes is not None:
            ring.cut(lanes[~resumes])
        ring.make_room(lanes, 1)
        episode, step = ring.next_ids(lanes, LANE_BITS)
        run = ring.runs_ahead(lanes)
        numbers = {"reward": reward, "version": version, "episode_id": episode, "step": step, "run": run}
        for name, column in (numbers | {"terminated": terminated, "truncated": truncated, "cut": False}).items():
            ring.columns[name][rows] = column
        ended = terminated | truncated
        self._put(rows, following, leaves, ended)
        self._keep(rows, obs, (step, state, ended), lanes)
        ring.run[lanes] = run
        ring.arrive(lanes, 1, (episode, step, ~ended))
        return count

    def _put(self, rows: Any, following: Any, leaves: list[Any], ended: np.ndarray) -> None:
        """Write the leaves of a step, and its next observations where its episode has not ended."""
        stored, frames = len(self._obs), self._ring.frames
        for into, leaf in zip(self._columns, leaves[2 * stored :], strict=True):
            into[rows] = leaf
        obs, behind = leaves[:stored], leaves[stored : 2 * stored]
        if frames is not None:
            obs, behind = frames.newest_leaves(obs), frames.newest_leaves(behind)
        for into, leaf in zip(self._obs, obs, strict=True):
            into[rows] = leaf
        if np.count_nonzero(ended):
            runs = np.flatnonzero(~ended)
            following, behind = as_array(following)[runs], [leaf[runs] for leaf in behind]
        for into, leaf in zip(self._obs, behind, strict=True):
            into[following] = leaf

    def _keep(self, rows: Any, obs: tuple[Tree, Tree], columns: tuple[Any, Any, Any], lanes: np.ndarray) -> None:
        """Write what only some rows have: first frames, states, last observations."""
        ring, (step, state, ended) = self._ring, columns
        if ring.frames is not None:
            fresh = np.flatnonzero(~ring.open[lanes])
            ring.frames.begin(as_array(rows)[fresh], Pick(obs[0], fresh))
        if ring.states is not None and state is not None:
            ring.states.keep(as_array(rows), step, state)
        if np.count_nonzero(ended):
            last = np.flatnonzero(ended)
            ring.put_finals(as_array(rows)[last], Pick(obs[1], last))

    def _lanes(self, env_id: Any) -> np.ndarray:
        lanes = np.asarray(env_id)
        count = self._ring.num_envs
        bad = lanes.ndim != 1 or lanes.dtype.kind not in "iu" or len(np.unique(lanes)) != len(lanes) or not len(lanes)
        if bad or lanes.min() < 0 or lanes.max() >= count:
            raise ConfigError(
                explain(
                    expected=f"distinct lanes from 0 to {count - 1}",
                    found=repr(env_id),
                    where="add(env_id=...)",
                    fix="pass one number for each row, or leave env_id out where there is a row for every lane",
                )
            )
        return lanes.astype(np.int64)

    def _continues(self, rows: Any, leaves: list[Any]) -> np.ndarray | None:
        """Whether these observations are those that came behind the last steps, in `rows`: bool [n], None if all are.

        Otherwise somebody has reset the environment in between, and nobody may join the two.
        """
        ring = self._ring
        if ring.frames is None:
            there = [leaf[rows] for leaf in self._obs]
        else:
            there = tree.leaves(observations(ring, as_array(rows)))
        return same_rows(there, leaves[: len(there)])


def _column(values: Any, wanted: np.dtype[Any], shape: tuple[int, ...], name: str) -> Any:
    """One number, or vector, for each row.

    Raises:
        SpecError: there is not.
    """
    if isinstance(values, np.ndarray) and values.dtype == wanted and values.shape == shape:
        return values
    if name == "version" and isinstance(values, int):
        return np.int64(values)  # One for all rows.
    array = np.asarray(values)
    if array.ndim == 0 and name == "version":
        array = np.full(shape, array)
    if array.shape != shape or not np.can_cast(array.dtype, wanted, "same_kind"):
        raise SpecError(
            explain(
                expected=f"shape {shape}, dtype {wanted}",
                found=f"shape {array.shape}, dtype {array.dtype}",
                where=f"{WHERE} at '{name}'",
                fix="pass one value for each lane",
            )
        )
    return array.astype(wanted, copy=False)
