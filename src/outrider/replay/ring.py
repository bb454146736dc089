"""The rows of a replay buffer: lanes of time-ordered steps, of which the oldest make room for the newest.

Step number `position` of a lane has the serial number `position * num_envs + lane`, which is never used again, and the
row `serial % rows`. The observation that it was taken from stands in its row, the one behind it in the row of the next
position, also when that step is still to come; where the episode ended or was cut, it is in `finals`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from outrider import tree
from outrider.errors import ConfigError, explain
from outrider.records.step_spec import StepSpec
from outrider.replay.columns import FINAL, allocate_columns, columns_nbytes
from outrider.replay.frames import Frames, Pick
from outrider.replay.sparse import ABSENT, Sparse, are_alike, rows_of, same_rows
from outrider.replay.states import States
from outrider.replay.storage import Storage, allocate
from outrider.spec import row_nbytes
from outrider.tree import Tree

__all__ = ["Listener", "Ring"]


class Listener(Protocol):
    """Whoever keeps something for each row."""

    def arrived(self, rows: np.ndarray) -> None:
        """Rows, int64 [n], hold new steps."""

    def left(self, rows: np.ndarray) -> None:
        """Rows, int64 [n], hold none any more."""


class Ring:
    """Steps of N lanes: each lane keeps its newest ones, as many as its share of the capacity.

    Attributes:
        spec, storage: what a step looks like, and what makes the arrays.
        num_envs: the number of lanes N.
        capacity: how many steps it holds at most.
        rows: how many rows there are; more than the capacity by the observations behind the newest steps.
        heads: int64 [N], the position of the next step of each lane.
        tails: int64 [N], the position of the oldest step that is there.
        columns: dict of trees [rows, ...]: all but the observations.
        records: [rows]: the array that those columns are views of that stand together.
        obs: tree [rows, ...].
        obs_leaves: its leaves, in the order of the spec.
        finals: true last observations of the steps after which an episode ended or was cut.
        tables: these and whatever else only some rows have, by name.
        everyone: int64 [N], all lanes; what is done for exactly this array costs less than for another one.
        ones: int64 [N], as many steps of each lane.
        env_ids: int64 [N], which lane of the source each one is.
        open: bool [N], whether what follows the newest step of a lane may continue its episode.
        states: the recurrent states that a view has asked for; None if none has, or there are none.
        torn: whether something has begun to change it that has not come to its end; see `mend`.
        may_begin: says which steps a sample may ever begin with, from their indices in their episodes, int64 [n]: bool
            [n]. A view sets it; None if that is every step.
    """

    def __init__(self, spec: StepSpec, capacity: int, storage: Storage) -> None:
        count = spec.num_envs
        if isinstance(capacity, bool) or not isinstance(capacity, (int, np.integer)) or capacity < count:
            raise ConfigError(
                explain(
                    expected=f"an integer of {count} or more: one step for each of the {count} lanes",
                    found=repr(capacity),
                    where="ReplayBuffer(capacity)",
                    fix="pass the number of steps that the buffer is to hold, over all lanes",
                )
            )
        self.spec = spec
        self.num_envs = count
        self.capacity = int(capacity)
        self._shares = np.full(count, capacity // count)
        self._shares[: capacity % count] += 1
        self.rows = (int(self._shares[0]) + 1) * count
        self.frames: Frames | None = None
        self.states: States | None = None
        self._stride: int | None = None
        self.may_begin: Callable[[np.ndarray], np.ndarray] | None = None
        self.storage = storage
        self.tables: dict[str, Sparse] = {}
        self.heads, self.tails = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.open = np.zeros(count, np.bool_)
        self.everyone, self.env_ids, self.ones = np.arange(count), np.arange(count), np.ones(count, np.int64)
        self._stand, self._bounds = (self.heads, self.open), (self.heads, self.tails, self._shares)
        self.torn = False
        # None where lanes have moved since somebody asked.
        self._is_even: bool | None = None
        self.listeners: list[Listener] = []

    # -- what is there -----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many steps there are."""
        return int((self.heads - self.tails).sum())

    @property
    def least_share(self) -> int:
        """How many steps of each lane fit at least."""
        return int(self._shares[-1])

    @property
    def is_even(self) -> bool:
        """Whether all lanes have come equally far and hold equally many steps."""
        if self._is_even is None:
            self._is_even = are_alike(self.heads) and are_alike(self.tails)
        return self._is_even

    def holds(self, serials: np.ndarray) -> np.ndarray:
        """Whether the steps with these serial numbers, int64 [n], are there: bool [n]."""
        positions, lanes = np.divmod(serials, self.num_envs)
        held: np.ndarray = (positions >= self.tails[lanes]) & (positions < self.heads[lanes])
        return held

    def serials(self) -> np.ndarray:
        """The serial numbers of all steps that are there, int64, ascending."""
        if self.is_even:
            return np.arange(self.tails[0] * self.num_envs, self.heads[0] * self.num_envs)
        bounds = zip(self.tails.tolist(), self.heads.tolist(), strict=True)
        every = [np.arange(tail, head) * self.num_envs + lane for lane, (tail, head) in enumerate(bounds)]
        return np.sort(np.concatenate(every))

    # -- what views ask for, before any step has come ----------------------------------------------------------------

    def keep_states(self, stride: int) -> None:
        """Keep the recurrent state of each step whose index in its episode is a multiple of `stride`.

        Where the spec has no state, nothing is kept.
        """
        if tree.leaves(self.spec.state):
            self._stride = stride
            if self.tables:
                self._add_states(stride)

    def keep_frames(self, count: int) -> None:
        """Store each frame of stacks of `count` once; nothing changes where that is 1.

        Raises:
            ConfigError: no leaf of the observations is a stack of so many, or frames of other stacks are stored.
        """
        if count == 1 or (self.frames is not None and self.frames.count == count):
            return
        if self.frames is not None or self.tables:
            raise ConfigError(
                explain(
                    expected=f"stacks of {self.frames.count if self.frames else 1} frames, as rows store them",
                    found=f"a view with frame_stack={count}",
                    where="ReplayBuffer(view)",
                    fix="make a buffer with that view",
                )
            )
        self.frames = Frames(self.spec.obs, count)
        # So that the rows that the oldest stacks reach back to are there as well.
        self.rows += (count - 1) * self.num_envs

    def allocate(self) -> None:
        """Make the arrays, once views have asked for all that they need."""
        self.columns, self.records = allocate_columns(self.storage, self.spec, self.rows)
        self.obs = allocate(self.storage, self.obs_specs, self.rows)
        self.obs_leaves = tree.leaves(self.obs)
        self._moves = importlib.import_module("outrider.replay.moves")
        self.finals = self.tables["finals"] = Sparse(self.obs_specs, self.records[FINAL], self.storage)
        if self.frames is not None:
            self.tables["firsts"] = self.frames.allocate(self.rows, self.storage)
        if self._stride is not None:
            self._add_states(self._stride)

    def _add_states(self, stride: int) -> None:
        # The name is that in files, of which one with another stride has other states.
        table = self.tables[f"states{stride}"] = Sparse(self.spec.state, np.empty(self.rows, np.int32), self.storage)
        self.states = States(table, stride)

    @property
    def obs_specs(self) -> Tree:
        """What a row stores of an observation: tree of `LeafSpec`."""
        return self.spec.obs if self.frames is None else self.frames.stored

    # -- what changes it ---------------------------------------------------------------------------------------------

    def join(self, lanes: np.ndarray, ids: tuple[np.ndarray, np.ndarray], first: list[Any]) -> None:
        """Steps of `lanes` are about to come: cut the episodes that they do not continue; see `continues`."""
        found = self.continues(lanes, ids, first)
        if found is not None:
            self.cut(lanes[~found])

    def continues(self, lanes: np.ndarray, ids: tuple[np.ndarray, np.ndarray], first: list[Any]) -> np.ndarray | None:
        """Whether steps go on where `lanes`, int64 [n], stand: bool [n], or None where all do.

        Ids alone do not say so: those of two collectors are the same.

        Args:
            lanes: distinct.
            ids: episode_id and step of the first ones, int64 [n] each.
            first: what rows store of the observations that they were taken from: leaves [n, ...]; see `stored`.
        """
        ids = self._moves.plain(ids[0]), self._moves.plain(ids[1])
        found: np.ndarray | None = self._moves.resumed(lanes, self._stand, self.records, ids)
        if found is not None and not np.count_nonzero(found):
            return found
        rows = self.rows_ahead(lanes)[0]
        same = same_rows([leaf[rows] for leaf in self.obs_leaves], first)
        return same if found is None else found if same is None else found & same

    def stored(self, chosen: Pick) -> Tree:
        """What rows store of observations: copies, a tree [n, ...] with its keys in the order of the spec."""
        if self.frames is None:
            return tree.map(lambda _, leaf: rows_of(leaf, chosen.rows), self.obs, chosen.obs)
        return self.frames.newest(chosen)

    def put_obs(self, rows: np.ndarray, chosen: Pick) -> None:
        """Store observations in `rows`, int64 [n]."""
        tree.put(self.obs, rows, self.stored(chosen))

    def put_finals(self, rows: np.ndarray, chosen: Pick) -> None:
        """Store the true last observations behind the steps in `rows`, int64 [n]."""
        self.finals.put(rows, self.stored(chosen))

    def cut(self, lanes: np.ndarray) -> None:
        """Cut the running episodes of `lanes`, int64 [n], behind their newest steps; those that run none are passed."""
        lanes = lanes[self.open[lanes]]
        if not len(lanes):
            return
        self.torn = True
        newest, behind = self.row_of(lanes, self.heads[lanes] - 1), self.row_of(lanes, self.heads[lanes])
        self.finals.put(newest, tree.map(lambda leaf: rows_of(leaf, behind), self.obs))
        self.columns["cut"][newest] = True
        self.open[lanes] = False
        self.torn = False

    def make_room(self, lanes: np.ndarray, counts: np.ndarray) -> None:
        """Let go of the oldest steps of `lanes` where `counts` more of each, int64 [n], would be too many.

        What is written to the rows ahead from now on is there once `arrive` has been called.
        """
        self.torn, self._is_even = True, None
        every = len(self.tables) > 1 or len(self.listeners) > 0
        rows = self._moves.let_go(lanes, counts, self._bounds, self.records, every)
        if rows is not None:
            self._let_go(rows)

    def _let_go(self, rows: np.ndarray) -> None:
        """Forget what tables have of the steps in `rows`, int64 [n], which are not there any more."""
        for table in self.tables.values():
            if self.frames is None or table is not self.frames.firsts:
                table.drop(rows)
        if self.frames is not None:
            # Those that the stacks of the oldest steps reach back to stay.
            self.frames.firsts.drop((rows - (self.frames.count - 1) * self.num_envs) % self.rows)
        for listener in self.listeners:
            listener.left(rows)

    def arrive(self, lanes: np.ndarray, counts: np.ndarray) -> None:
        """Steps of `lanes` have been written, `counts` of each, int64 [n], from their heads on; see `moves.arrive`."""
        if self.listeners:
            rows = self._moves.rows_ahead(lanes, counts, self.heads, self.rows)
            for listener in self.listeners:
                listener.arrived(rows)
        self._is_even = None
        self._moves.arrive(lanes, counts, self._stand, self.records)
        self.torn = False

    def number(self, lanes: np.ndarray, ends: list[np.ndarray], version: int) -> int:
        """Number the next step of each lane, and write how it ended; return how many did. See `moves.number`."""
        plain = self._moves.plain
        return int(self._moves.number(lanes, self._stand, self.records, (plain(ends[0]), plain(ends[1])), version))

    def put_records(self, columns: list[np.ndarray]) -> None:
        """Write reward, flags and numbers, [T, N, ...], of the next steps of all lanes, which stand together."""
        reward, *others = map(self._moves.plain, columns)
        self._moves.put_records(self._stand, self.records, reward, tuple(others[:3]), tuple(others[3:]))

    def number_runs(self, lanes: np.ndarray, counts: np.ndarray) -> None:
        """Write where the runs of the next steps began, once their ends are written. See `moves.runs`."""
        self._moves.runs(lanes, counts, self._stand, self.records)

    def rows_ahead(self, lanes: np.ndarray) -> tuple[Any, Any]:
        """The rows of the next steps of `lanes`, and those behind them: slices or int64 [n]."""
        start = self.start if lanes is self.everyone else -1
        if start < 0:
            return self.row_of(lanes, self.heads[lanes]), self.row_of(lanes, self.heads[lanes] + 1)
        stop = start + self.num_envs
        return slice(start, stop), slice(stop, stop + self.num_envs) if stop < self.rows else slice(0, self.num_envs)

    @property
    def start(self) -> int:
        """The first of the rows of the next steps of all lanes, which follow one another; -1 if lanes stand apart."""
        return int(self._moves.together(self.heads, self.rows))

    def row_of(self, lanes: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The rows of positions of lanes, int64 [n]."""
        rows: np.ndarray = (positions * self.num_envs + lanes) % self.rows
        return rows

    def clear(self) -> None:
        """Let go of all steps; serial numbers go on."""
        self.torn = True
        self.tails[:] = self.heads
        self.mend()

    def mend(self) -> None:
        """Make whole what a call has left half changed that was interrupted; nothing happens where none was.

        Steps that had not arrived are not there, nor is anything of those that had to go; a cut that had begun is made.
        """
        if not self.torn:
            return
        self._is_even = None
        held = np.zeros(self.rows, np.bool_)
        held[self.serials() % self.rows] = True
        for table in self.tables.values():
            if self.frames is None or table is not self.frames.firsts:
                table.keep(held)
        if self.frames is not None:
            self.frames.firsts.keep(held | self._reached())
        filled = np.flatnonzero(self.heads > self.tails)
        newest = self.row_of(filled, self.heads[filled] - 1)
        over = self.finals.at[newest] != ABSENT
        ended = self.columns["terminated"][newest] | self.columns["truncated"][newest]
        self.columns["cut"][newest[over & ~ended]] = True
        self.open[:] = False
        self.open[filled] = ~over
        for listener in self.listeners:
            listener.left(np.flatnonzero(~held))
        self.torn = False

    def _reached(self) -> np.ndarray:
        """The rows of former steps that stacks may still reach back to: bool [rows]."""
        assert self.frames is not None
        reached = np.zeros(self.rows, np.bool_)
        for back in range(1, self.frames.count):
            reached[self.row_of(self.everyone, self.tails - back)] = True
        return reached

    @property
    def lane_state(self) -> dict[str, np.ndarray]:
        """Where each lane stands: arrays [N] by name, which may be written to."""
        self._is_even = None
        return {"heads": self.heads, "tails": self.tails, "open": self.open}

    # -- what must hold ----------------------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self._rows_nbytes + sum(table.nbytes for table in self.tables.values())

    @property
    def _rows_nbytes(self) -> int:
        # The slots of last observations stand among the columns, and are counted with their table.
        return self.rows * (columns_nbytes(self.spec) - 4 + row_nbytes(self.obs_specs))

    def nbytes_with(self, segments: int) -> int:
        """Bytes of all arrays, at most, when as many steps are there as fit, in so many episodes or parts of them.

        No array needs to be there for that.
        """
        nbytes = self._rows_nbytes + Sparse.nbytes_of(self.obs_specs, self.rows, segments)
        if self.frames is not None:
            nbytes += Sparse.nbytes_of(self.frames.specs, self.rows, segments)
        if self._stride is not None:
            states = min(self.capacity, self.capacity // self._stride + segments)
            nbytes += Sparse.nbytes_of(self.spec.state, self.rows, states)
        return nbytes

    def check(self) -> None:
        """Verify what holds between any two calls.

        Raises:
            AssertionError: something does not.
        """
        assert not self.torn, "a call has begun to change it and not come to its end"
        sizes = self.heads - self.tails
        assert (sizes >= 0).all(), "a lane holds fewer than no steps"
        assert (sizes <= self._shares).all(), "a lane holds more than its share"
        for table in self.tables.values():
            table.check()
        rows = self.serials() % self.rows
        ended = self.columns["terminated"][rows] | self.columns["truncated"][rows] | self.columns["cut"][rows]
        assert ((self.finals.at[rows] != ABSENT) == ended).all(), "ends and last observations do not match"
        others = np.ones(self.rows, np.bool_)
        others[rows] = False
        assert (self.finals.at[others] == ABSENT).all(), "a row that is not there has a last observation"
        if self.states is not None:
            self.states.check(~others, self.columns["step"])
        if self.frames is not None:
            self.frames.check(~others, rows[ended], self._reached(), self.num_envs)
        newest = self.row_of(self.everyone, self.heads - 1)[sizes > 0]
        runs = self.finals.at[newest] == ABSENT
        assert (self.open[sizes > 0] == runs).all(), "a lane does not know whether its episode runs"
        assert not self.open[sizes == 0].any(), "an episode runs in an empty lane"
