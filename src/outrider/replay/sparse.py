"""Columns that only some rows of a ring have a value in: true last observations, states at the starts of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider import tree
from outrider.memory.ragged import RaggedLeaf
from outrider.replay.storage import Storage, allocate
from outrider.spec import row_nbytes
from outrider.tree import Tree

__all__ = ["ABSENT", "UNKNOWN", "Sparse", "are_alike", "as_array", "rows_of", "same_rows"]

ABSENT, UNKNOWN = -1, -2
"""In place of a slot: the row has no value; it ought to have one, but nobody knows it."""

SMALL = 4096
"""Bytes up to which rows are compared as such, which costs less than a call of NumPy's."""

LEAST = 64
"""Slots that a table has at least."""


class Sparse:
    """A table of values, and for each row of the ring the slot of its value, which is kept in `at`.

    It grows by half when it is full and shrinks by half when less than a quarter of it is in use, so that it costs what
    the ring holds.

    Attributes:
        specs: tree of `LeafSpec` of a value.
        at: int32 [rows of the ring]: the slot, or `ABSENT`, or `UNKNOWN`.
        table: tree of arrays [slots, ...].
        owner: int64 [slots]: the row of each slot, -1 where none has it.

    Example:
        >>> from outrider.replay.storage import Memory
        >>> from outrider.spec import LeafSpec
        >>> finals = Sparse(LeafSpec((), np.dtype("f4")), np.zeros(10, np.int32), Memory())
        >>> finals.put(np.array([3, 7]), np.array([30.0, 70.0], np.float32))
        >>> finals.take(np.array([7])), len(finals)
        (array([70.], dtype=float32), 2)
    """

    def __init__(self, specs: Tree, at: np.ndarray, storage: Storage) -> None:
        self.specs = specs
        self._storage = storage
        self.at = at
        at[:] = ABSENT
        self.table: Tree = allocate(storage, specs, LEAST)
        self.owner = np.full(LEAST, -1, np.int64)
        # Slots that are not in use, of which the last are taken next.
        self._free = list(range(LEAST))[::-1]
        self._unknown = 0

    def __len__(self) -> int:
        """How many rows have a value."""
        return len(self.owner) - len(self._free)

    def put(self, rows: np.ndarray, values: Tree) -> None:
        """Give `rows`, int64 [n], these values, a tree [n, ...]; none of them has one."""
        count = len(rows)
        if count > len(self._free):
            self._resize(max(len(self.owner) * 3 // 2, len(self) + count))
        first = len(self._free) - count
        slots = np.array(self._free[first:], np.int64)
        del self._free[first:]
        self.owner[slots] = rows
        self.at[rows] = slots
        tree.put(self.table, slots, values)

    def mark_unknown(self, rows: np.ndarray) -> None:
        """Note that the values of `rows`, int64 [n], are not known."""
        self.at[rows] = UNKNOWN
        self._unknown += len(rows)

    @property
    def has_unknown(self) -> bool:
        """Whether there is a row whose value is not known."""
        return self._unknown > 0

    def drop(self, rows: Any) -> None:
        """Forget the values of `rows`, a slice or int64 [n], as far as they have any."""
        slots = self.at[rows]
        if not np.count_nonzero(slots != ABSENT):
            return
        self._unknown -= int((slots == UNKNOWN).sum())
        slots = slots[slots >= 0]
        self.at[rows] = ABSENT
        self.owner[slots] = -1
        for leaf in tree.leaves(self.table):
            if isinstance(leaf, RaggedLeaf):
                for slot in slots.tolist():
                    leaf.take(slot, slot + 1)
        self._free.extend(slots.tolist())
        if len(self.owner) > LEAST and len(self) < len(self.owner) // 4:
            self._resize(max(LEAST, len(self.owner) // 2))

    def take(self, rows: np.ndarray) -> Tree:
        """A copy of the values of `rows`, int64 [n], all of which have one: a tree [n, ...]."""
        slots = self.at[rows]
        return tree.map(lambda leaf: rows_of(leaf, slots), self.table)

    def _resize(self, slots: int) -> None:
        """Move all values to a table of so many slots."""
        used = np.flatnonzero(self.owner >= 0)
        owners, values = self.owner[used], tree.map(lambda leaf: rows_of(leaf, used), self.table)
        self.table = allocate(self._storage, self.specs, slots)
        tree.put(self.table, slice(0, len(used)), values)
        self.owner = np.full(slots, -1, np.int64)
        self.owner[: len(used)] = owners
        self.at[owners] = np.arange(len(used))
        self._free = list(range(len(used), slots))[::-1]

    @property
    def nbytes(self) -> int:
        """Bytes of the table and of the slots' numbers."""
        return self._nbytes(self.specs, len(self.at), len(self.owner))

    @classmethod
    def nbytes_of(cls, specs: Tree, rows: int, values: int) -> int:
        """Bytes of a table that has grown to so many values, at most."""
        return cls._nbytes(specs, rows, max(LEAST, values * 3 // 2))

    @staticmethod
    def _nbytes(specs: Tree, rows: int, slots: int) -> int:
        return 4 * rows + (8 + row_nbytes(specs)) * slots

    def check(self) -> None:
        """Verify that rows and slots name each other, and that no slot is lost.

        Raises:
            AssertionError: they do not.
        """
        rows = np.flatnonzero(self.at >= 0)
        assert (self.owner[self.at[rows]] == rows).all(), "a row's slot belongs to another row"
        assert len(rows) == len(self), "slots are in use that no row has"
        assert (self.at == UNKNOWN).sum() == self._unknown, "rows without a known value are counted wrong"
        assert sorted([*self._free, *self.at[rows].tolist()]) == list(range(len(self.owner))), "a slot is lost"


def rows_of(leaf: Any, rows: np.ndarray) -> np.ndarray:
    """A copy of rows of an array or of a ragged leaf; `take` is several times faster than an index.

    But it copies all of an array that is not contiguous.
    """
    if isinstance(leaf, np.ndarray) and leaf.flags.c_contiguous:
        return leaf.take(rows, 0)
    found: np.ndarray = leaf[rows]
    return found


def same_rows(here: list[Any], there: list[Any]) -> np.ndarray | None:
    """Which rows are equal in all leaves, [n, ...] each: bool [n], or None where all are. NaN equals itself."""
    same: np.ndarray | None = None
    for ours, theirs in zip(here, there, strict=True):
        if not ours.dtype.hasobject:
            if ours.nbytes < SMALL and ours.tobytes() == theirs.tobytes():
                continue
            if np.array_equal(ours, theirs):
                continue
        # NaN is not equal to itself, but the same bytes are the same observation.
        alike = np.array([_same(a, b) for a, b in zip(ours, theirs, strict=True)], np.bool_)
        same = alike if same is None else same & alike
    return same


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, (np.ndarray, np.generic)):
        return bool(a.shape == b.shape) and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(value, b[key]) for key, value in a.items())
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


def as_array(rows: Any) -> np.ndarray:
    """Rows as int64 [n], also where they are a slice."""
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


def are_alike(numbers: np.ndarray) -> bool:
    """Whether all are the same; to count costs a fraction of `all`."""
    return int(np.count_nonzero(numbers == numbers[0])) == len(numbers)
