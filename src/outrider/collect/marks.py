"""Rows that something is to be said of, where there are few of them or none at all."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

__all__ = ["Marks"]


class Marks:
    """A set of row numbers that costs nothing while it is empty.

    Example:
        >>> marks = Marks()
        >>> marks.add([3, 8])
        >>> marks.of(np.array([2, 3])), marks.take(np.array([8])), len(marks)
        (array([False,  True]), array([ True]), 1)
    """

    def __init__(self) -> None:
        self._rows: set[int] = set()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: Iterable[int]) -> None:
        """Mark rows."""
        self._rows.update(rows)

    def of(self, rows: np.ndarray) -> np.ndarray:
        """Which of `rows` are marked, bool of their shape."""
        if not self._rows:
            return np.zeros(rows.shape, np.bool_)
        return np.isin(rows, np.fromiter(self._rows, np.int64, len(self._rows)))

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The same; these rows are not marked any more."""
        marked = self.of(rows)
        if self._rows:
            self._rows.difference_update(rows[marked].tolist())
        return marked

    def keep(self, rows: np.ndarray) -> None:
        """Unmark all other rows."""
        if self._rows:
            self._rows.intersection_update(rows.tolist())
