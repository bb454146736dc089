"""Recurrent states, kept only for the steps that a sequence may begin with."""

from __future__ import annotations

import numpy as np

from outrider import tree
from outrider.replay.gathering import blank
from outrider.replay.sparse import ABSENT, Sparse, rows_of
from outrider.tree import Tree

__all__ = ["States"]


class States:
    """The states fed to the steps whose index in their episode is a multiple of `stride`.

    A step that came without a state, as those of a policy that has none, is given zeros.

    Args:
        table: where they are kept; the ring lets go of them with their rows.
        stride: 1 or more.
    """

    def __init__(self, table: Sparse, stride: int) -> None:
        self._table = table
        self._stride = stride

    def keep(self, rows: np.ndarray, step: np.ndarray, states: Tree, index: np.ndarray | None = None) -> None:
        """Keep the states of new steps, as far as they are wanted.

        Args:
            rows: int64 [n], which the steps stand in.
            step: int64 [n], their indices in their episodes.
            states: tree [m, ...].
            index: int64 [n], which of the states belongs to each step; None: the first to the first, and so on.
        """
        starts = np.flatnonzero(step % self._stride == 0)
        if len(starts):
            chosen = starts if index is None else index[starts]
            self._table.put(rows[starts], tree.map(lambda leaf: rows_of(leaf, chosen), states))

    def take(self, rows: np.ndarray) -> Tree:
        """A copy of the states fed to the steps in `rows`, int64 [B]: a tree [B, ...]."""
        slots = self._table.at[rows]
        found = tree.map(lambda leaf: rows_of(leaf, np.maximum(slots, 0)), self._table.table)
        blank(found, self._table.specs, np.flatnonzero(slots == ABSENT))
        return found

    def check(self, held: np.ndarray, step: np.ndarray) -> None:
        """Verify that only steps have a state which are there, bool [rows], and may be begun with; int64 [rows].

        Raises:
            AssertionError: another one has.
        """
        rows = np.flatnonzero(self._table.at != ABSENT)
        assert held[rows].all(), "a row that is not there has a state"
        assert (step[rows] % self._stride == 0).all(), "a step has a state that no sequence begins with"
