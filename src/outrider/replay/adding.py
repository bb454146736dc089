"""Single steps of hand-written loops: one of each lane, or of some of them."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np

from outrider import tree
from outrider.errors import ConfigError, SpecError, explain
from outrider.replay.columns import require_extras
from outrider.replay.frames import Frames, Pick
from outrider.replay.gathering import observations
from outrider.replay.leaves import Leaves, as_array, fitted
from outrider.replay.names import Names
from outrider.replay.ring import Ring
from outrider.replay.sparse import row_numbers, same_rows
from outrider.spec import LeafSpec
from outrider.tree import Tree

__all__ = ["Adder"]

WHERE = "add(...)"

COLUMNS = ("action", "extras", "info", "obs_info", "reward")
"""What is written as it comes, besides observations."""

FLOAT64, INT64, BOOL = np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.bool_)

FLAG = LeafSpec((), BOOL)

NOBODY = np.zeros(0, np.int64)


class Adder:
    """Writes one step of each of some lanes at a time, and numbers episodes and steps itself.

    Args:
        ring: where to.
        names: which lane each `env_id` has.
    """

    def __init__(self, ring: Ring, names: Names) -> None:
        self._ring = ring
        self._names = names
        self._begin()

    def _begin(self) -> None:
        """Know what the rows of the ring look like."""
        ring = self._ring
        self._spec = ring.spec
        spec, columns = ring.spec, {name: getattr(ring.spec, name) for name in COLUMNS}
        ends = {"terminated": FLAG, "truncated": FLAG}
        self._given = Leaves({"obs": spec.obs, "next_obs": spec.obs, **ends, **columns})
        self._state = Leaves({"state": spec.state})
        self._columns = tree.leaves(tuple(ring.columns[name] for name in COLUMNS))
        # Which of the leaves are observations, those behind, ends, and the others.
        bounds = (0, len(ring.obs_leaves), 2 * len(ring.obs_leaves), 2 * len(ring.obs_leaves) + 2, None)
        self._parts = tuple(slice(*pair) for pair in pairwise(bounds))

    def add(self, given: dict[str, Tree], version: Any, state: Tree, env_id: Any) -> int:
        """Write a step of each lane in `env_id`, or of all where that is None; return how many.

        Args:
            given: trees [n, ...] by name: "obs", acted upon, "next_obs", behind the step, "terminated", "truncated",
                and `COLUMNS`.
            version: int, or int [n].
            state: tree [n, ...], or None.
            env_id: distinct lanes, int [n], or None.

        Raises:
            SpecError: a column is not as the spec says; nothing has been written then.
            ConfigError: the lanes are none.
        """
        ring = self._ring
        if self._spec is not ring.spec:
            self._begin()
        lanes, new = (ring.everyone, self._names.rest()) if env_id is None else self._lanes(env_id)
        count = len(lanes)
        leaves = self._given.found(given, (count,))
        if leaves is None:
            given = self._fitted(given, count)
            leaves = self._given.of(given, (count,), WHERE)
        if type(version) is not int or abs(version) >> 63:
            version = _column(version, INT64, (count,), "version")
        if state is not None:
            state = self._state_of(state, count)
        if ring.frames is not None:
            self._require_shifted(given, lanes, ring.frames)
        self._names.give(new)
        self._write(lanes, leaves, version, (given, state))
        return count

    def _write(self, lanes: np.ndarray, leaves: list[Any], version: Any, some: tuple[dict[str, Tree], Tree]) -> None:
        """Write leaves, in the order of `_given`; a version, or one of each; and what only some rows have."""
        ring = self._ring
        obs, behind, ends, columns = [leaves[part] for part in self._parts]
        rows, following = ring.rows_ahead(lanes)
        resumes = self._continues(rows, obs)
        if resumes is not None:
            ring.cut(lanes[~resumes])
        each = ring.ones if lanes is ring.everyone else ring.ones[: len(lanes)]
        ring.make_room(lanes, each)
        one = version if type(version) is int else 0
        over = NOBODY
        if ring.number(lanes, ends, one):
            ended = ends[0] | ends[1]
            over, runs = np.flatnonzero(ended), np.flatnonzero(~ended)
            following = row_numbers(following)[runs]
            behind = [leaf[runs] for leaf in behind]
        if one is not version:
            ring.columns["version"][rows] = version
        for into, leaf in zip(self._columns, columns, strict=True):
            into[rows] = leaf
        if ring.frames is not None:
            obs, behind = ring.frames.newest_leaves(obs), ring.frames.newest_leaves(behind)
        if resumes is not None:
            # Otherwise they are there already.
            for into, leaf in zip(ring.obs_leaves, obs, strict=True):
                into[rows] = leaf
        for into, leaf in zip(ring.obs_leaves, behind, strict=True):
            into[following] = leaf
        if len(over) or ring.frames is not None or ring.states is not None:
            self._keep(rows, *some, over)
        ring.arrive(lanes, each)

    def _keep(self, rows: Any, given: dict[str, Tree], state: Tree, over: np.ndarray) -> None:
        """Write what only some rows have: first frames, states, last observations."""
        ring = self._ring
        if ring.frames is not None:
            fresh = np.flatnonzero(ring.columns["step"][rows] == 0)
            ring.frames.begin(row_numbers(rows)[fresh], Pick(given["obs"], fresh))
        if ring.states is not None and state is not None:
            ring.states.keep(row_numbers(rows), ring.columns["step"][rows], state)
        if len(over):
            ring.put_finals(row_numbers(rows)[over], Pick(given["next_obs"], over))

    def _fitted(self, given: dict[str, Tree], count: int) -> dict[str, Tree]:
        """What was given, with arrays in place of what is none.

        Raises:
            SpecError: something cannot be made one.
        """
        require_extras(given["extras"], self._spec.extras, WHERE)
        shape = (count, *self._ring.spec.reward.shape)
        given = given | {"reward": _column(given["reward"], FLOAT64, shape, "reward")}
        found: dict[str, Tree] = self._given.fitted(given, WHERE)
        return found

    def _state_of(self, state: Tree, count: int) -> Tree:
        """Recurrent states as the spec says, or None.

        Raises:
            SpecError: they are others.
        """
        if state is None:
            return None
        columns = self._state.fitted({"state": state}, WHERE)
        self._state.of(columns, (count,), WHERE)
        return columns["state"]

    def _require_shifted(self, given: dict[str, Tree], lanes: np.ndarray, frames: Frames) -> None:
        """Refuse stacks behind the step that are not those before it, shifted by one frame."""
        ring, every = self._ring, np.arange(len(lanes))
        newest = ring.columns["step"][ring.row_of(lanes, ring.heads[lanes] - 1)]
        steps = np.where(ring.open[lanes], newest + 1, 0)
        frames.require_shifted(Pick(given["next_obs"], every), Pick(given["obs"], every), (lanes, steps), WHERE)

    def _lanes(self, env_id: Any) -> tuple[np.ndarray, dict[int, int]]:
        """The lanes of these env_id, int64 [n], and those that have to be given first.

        Raises:
            ConfigError: they are not distinct numbers, or there are too many.
        """
        lanes = np.zeros(0)
        with suppress(TypeError, ValueError):
            lanes = np.asarray(env_id)
        numbers = lanes.tolist() if lanes.ndim == 1 and lanes.dtype.kind in "iu" else []
        if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
            raise ConfigError(
                explain(
                    expected="distinct numbers of lanes, 0 or more, int [n]",
                    found=repr(env_id),
                    where="add(env_id=...)",
                    fix="pass one number for each row, or leave env_id out where there is a row for every lane",
                )
            )
        return self._names.find(lanes.astype(np.int64), "add(env_id=...)")

    def _continues(self, rows: Any, obs: list[Any]) -> np.ndarray | None:
        """Whether these observations are those that came behind the last steps, in `rows`: bool [n], None if all are.

        Otherwise somebody has reset the environment in between, and nobody may join the two.
        """
        ring = self._ring
        if ring.frames is None:
            return same_rows([leaf[rows] for leaf in ring.obs_leaves], obs)
        return same_rows(tree.leaves(observations(ring, row_numbers(rows))), obs)


def _write(columns: list[Any], rows: Any, leaves: list[Any]) -> None:
    for into, leaf in zip(columns, leaves, strict=True):
        into[rows] = leaf


def _column(values: Any, wanted: np.dtype[Any], shape: tuple[int, ...], name: str) -> np.ndarray:
    """One number, or vector, for each row.

    Raises:
        SpecError: there is not.
    """
    where = f"{WHERE} at '{name}'"
    array = fitted(as_array(values, LeafSpec(shape[1:], wanted), where), wanted)
    if array.ndim == 0 and name == "version":
        array = np.full(shape, array)
    if array.shape != shape or array.dtype != wanted:
        raise SpecError(
            explain(
                expected=f"shape {shape}, dtype {wanted}",
                found=f"shape {array.shape}, dtype {array.dtype}",
                where=where,
                fix="pass one value for each lane",
            )
        )
    return array
