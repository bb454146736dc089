"""The side table: true last observations of the episodes that ended or were cut, one row for each end."""

from __future__ import annotations

import numpy as np

from outrider import tree
from outrider.tree import Tree

__all__ = ["SideTable"]


class SideTable:
    """Last observations (and recurrent states) by the row number of the step that they followed.

    It grows with what has ended and shrinks as rows are handed out.
    """

    def __init__(self, observations: Tree) -> None:
        self._sources: dict[str, Tree] = {"obs": observations, "state": None}
        self.rows = np.zeros(0, np.int64)
        self._count = 0
        self._make(0)

    def __len__(self) -> int:
        return self._count

    def fix_state(self, states: Tree) -> None:
        """Keep states too; `states` are arrays by row number, as the observations are. The table is empty."""
        assert not self._count, "there are no ends before the first decision"
        self._sources["state"] = states
        self._make(0)

    def _make(self, capacity: int) -> None:
        """Make columns for `capacity` entries; what is in the table moves over."""

        def grown(old: np.ndarray) -> np.ndarray:
            new = np.empty((capacity, *old.shape[1:]), old.dtype)
            new[: self._count] = old[: self._count]
            return new

        old = self._data if self._count else tree.map(lambda leaf: leaf[:0], self._sources)
        self.rows = grown(self.rows)
        self._data: dict[str, Tree] = tree.map(grown, old)
        self._leaves: list[np.ndarray] = tree.leaves(self._data)
        pairs = zip(self._leaves, tree.leaves(self._sources), strict=True)
        cut = len(tree.leaves(self._data["obs"]))
        paired = list(pairs)
        self._obs_pairs, self._state_pairs = paired[:cut], paired[cut:]

    def add(self, row: int, observation: int, state: int) -> None:
        """Add the end of the step in `row`: copies of the last observation and state, which stand in these rows."""
        count = self._count
        if count == len(self.rows):
            self._make(max(64, 2 * count))
        self.rows[count] = row
        for column, source in self._obs_pairs:
            column[count] = source[observation]
        for column, source in self._state_pairs:
            column[count] = source[state]
        self._count = count + 1

    def extend(self, rows: np.ndarray, leaves: list[np.ndarray]) -> None:
        """Add what `take_all` of another table has returned."""
        first, last = self._count, self._count + len(rows)
        if last > len(self.rows):
            self._make(max(last, 2 * len(self.rows)))
        self.rows[first:last] = rows
        for column, leaf in zip(self._leaves, leaves, strict=True):
            column[first:last] = leaf
        self._count = last

    def find(self, rows: np.ndarray) -> np.ndarray:
        """Return where the ends of `rows`, int64 [R], are in the table: int64 [R], -1 for steps that ended nothing."""
        known = self.rows[: self._count]
        if not self._count:
            return np.full(len(rows), -1, np.int64)
        order = np.argsort(known)
        at = np.minimum(np.searchsorted(known, rows, sorter=order), self._count - 1)
        slots = order[at]
        return np.where(known[slots] == rows, slots, -1)

    def take_all(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """Remove everything: rows, int64 [e], and the leaves, [e, ...] each."""
        count, self._count = self._count, 0
        return self.rows[:count].copy(), [leaf[:count].copy() for leaf in self._leaves]

    def take(self, slots: np.ndarray) -> tuple[Tree, Tree]:
        """Remove entries and return copies of their observations and states, [e, ...] in the order of `slots`."""
        taken = tree.take(self._data, slots)
        if len(slots) == self._count:
            self._count = 0
            return taken["obs"], taken["state"]
        keep = np.ones(self._count, np.bool_)
        keep[slots] = False
        left = int(keep.sum())
        if left:
            kept = np.flatnonzero(keep)
            self.rows[:left] = self.rows[kept]
            for column in self._leaves:
                column[:left] = column[kept]
        self._count = left
        return taken["obs"], taken["state"]
