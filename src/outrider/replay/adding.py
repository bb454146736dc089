"""Single steps of hand-written loops: one of each lane, or of some of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider import tree
from outrider.errors import ConfigError, SpecError, explain
from outrider.replay.frames import Pick
from outrider.replay.gathering import observations
from outrider.replay.ring import Ring
from outrider.spec import check_batch
from outrider.tree import Tree

__all__ = ["Adder"]

LANE_BITS = 32
"""Episode ids are those of collectors: the ordinal of the episode in its lane, shifted by this, plus the lane."""

WHERE = "add(...)"


class Adder:
    """Writes one step of each of some lanes at a time, and numbers episodes and steps itself.

    Args:
        ring: where to.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._everyone = np.arange(ring.num_envs)
        spec = ring.spec
        self._obs = {"obs": spec.obs, "next_obs": spec.obs}
        self._columns = {name: getattr(spec, name) for name in ("action", "extras", "info", "obs_info")}

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
        lanes = self._everyone if env_id is None else self._lanes(env_id)
        count = len(lanes)
        before, behind = obs
        numbers = (
            _column(columns.pop("reward"), np.float64, (count, *ring.spec.reward.shape), "reward"),
            _column(columns.pop("version"), np.int64, (count,), "version"),
        )
        terminated, truncated = (
            _column(flag, np.bool_, (count,), name)
            for flag, name in zip(flags, ("terminated", "truncated"), strict=True)
        )
        check_batch(self._obs, {"obs": before, "next_obs": behind}, (count,), WHERE)
        state = columns.pop("state", None)
        if state is not None:
            check_batch({"state": ring.spec.state}, {"state": state}, (count,), WHERE)
        check_batch(self._columns, columns, (count,), WHERE)
        every = self._everyone[:count]
        if ring.frames is not None:
            who = lanes, ring.next_ids(lanes, LANE_BITS)[1]
            ring.frames.require_shifted(Pick(behind, every), Pick(before, every), who, WHERE)
        ring.cut(lanes[~self._continues(lanes, before)])
        ring.make_room(lanes, 1)
        episode, step = ring.next_ids(lanes, LANE_BITS)
        rows = ring.row_of(lanes, ring.heads[lanes])
        columns |= {"reward": numbers[0], "version": numbers[1], "episode_id": episode, "step": step}
        columns |= {"terminated": terminated, "truncated": truncated, "cut": np.zeros(count, np.bool_)}
        for name, column in columns.items():
            tree.put(ring.columns[name], rows, column)
        ring.put_obs(rows, Pick(before, every))
        if ring.frames is not None:
            fresh = np.flatnonzero(~ring.open[lanes])
            ring.frames.begin(rows[fresh], Pick(before, fresh))
        if ring.states is not None and state is not None:
            ring.states.keep(rows, step, state)
        ended = terminated | truncated
        runs = ~ended
        if runs.any():
            ring.put_obs(ring.row_of(lanes, ring.heads[lanes] + 1)[runs], Pick(behind, every[runs]))
        if ended.any():
            ring.put_finals(rows[ended], Pick(behind, every[ended]))
        ring.arrive(lanes, 1, (episode, step, runs))
        return count

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

    def _continues(self, lanes: np.ndarray, obs: Tree) -> np.ndarray:
        """Whether these observations are those that came behind the last steps: bool [n].

        Otherwise somebody has reset the environment in between, and nobody may join the two.
        """
        ring = self._ring
        rows = ring.row_of(lanes, ring.heads[lanes])
        same = np.ones(len(lanes), np.bool_)
        for here, given in zip(tree.leaves(observations(ring, rows)), tree.leaves(obs), strict=True):
            if not np.array_equal(here, given):
                # NaN is not equal to itself, but the same bytes are the same observation.
                same &= [_same(a, b) for a, b in zip(here, given, strict=True)]
        return same


def _same(a: Any, b: Any) -> bool:
    return a.tobytes() == b.tobytes() if isinstance(a, (np.ndarray, np.generic)) else bool(a == b)


def _column(values: Any, dtype: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    """One number, or vector, for each row.

    Raises:
        SpecError: there is not.
    """
    array = np.asarray(values)
    wanted = np.dtype(dtype)
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
