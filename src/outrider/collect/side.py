"""The side table: true last observations of the episodes that ended or were cut, one row for each end."""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider import tree
from outrider.tree import Tree

__all__ = ["SideTable"]


class SideTable:
    """Last observations (and recurrent states) by the row number of the step that they followed.

    It grows with what has ended and shrinks as rows are handed out.
    """

    def __init__(self, observation: Tree) -> None:
        self.rows = np.zeros(0, np.int64)
        self._count = 0
        self._specs: dict[str, Tree] = {"obs": observation, "state": None}
        self._data: dict[str, Tree] = tree.zeros(self._specs, 0)
        self._leaves: list[np.ndarray] = tree.leaves(self._data)

    def __len__(self) -> int:
        return self._count

    def fix_state(self, specs: Tree) -> None:
        """Keep states too, of these specs; what is there already had none."""
        self._specs["state"] = specs
        self._data["state"] = tree.zeros(specs, len(self.rows))
        self._leaves = tree.leaves(self._data)

    def add(self, rows: Any, leaves: list[np.ndarray]) -> None:
        """Add the ends of the steps in `rows`, int64 [e]; `leaves` are those of obs and then of state, [e, ...]."""
        first, last = self._count, self._count + len(rows)
        if last > len(self.rows):
            self._grow(max(last, 2 * len(self.rows), 64))
        self.rows[first:last] = rows
        for column, leaf in zip(self._leaves, leaves, strict=True):
            column[first:last] = leaf
        self._count = last

    def _grow(self, capacity: int) -> None:
        def grown(old: np.ndarray) -> np.ndarray:
            new = np.empty((capacity, *old.shape[1:]), old.dtype)
            new[: self._count] = old[: self._count]
            return new

        self.rows = grown(self.rows)
        self._data = tree.map(grown, self._data)
        self._leaves = tree.leaves(self._data)

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
        """Remove everything: rows, int64 [e], and the leaves as `add` takes them."""
        count, self._count = self._count, 0
        return self.rows[:count].copy(), [leaf[:count].copy() for leaf in self._leaves]

    def take(self, slots: np.ndarray) -> tuple[Tree, Tree]:
        """Remove entries and return copies of their observations and states, [e, ...] in the order of `slots`."""
        taken = tree.take(self._data, slots)
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
