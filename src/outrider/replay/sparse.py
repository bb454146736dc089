"""Columns that only some rows of a ring have a value in: true last observations, states at the starts of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider import tree
from outrider.memory.ragged import RaggedLeaf
from outrider.replay.storage import Storage, allocate
from outrider.spec import row_nbytes
from outrider.tree import Tree

__all__ = ["ABSENT", "UNKNOWN", "Sparse", "are_alike", "row_numbers", "rows_of", "same_rows"]

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

    Whoever is interrupted may leave it half changed: `owner` is right at any time, and `keep` makes the rest of it.

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
        self._is_ragged = any(isinstance(leaf, RaggedLeaf) for leaf in tree.leaves(self.table))

    def __len__(self) -> int:
        """How many rows have a value."""
        return len(self.owner) - len(self._free)

    def put(self, rows: np.ndarray, values: Tree) -> None:
        """Give `rows`, int64 [n], these values, a tree [n, ...]; none of them has one."""
        count = len(rows)
        if count > len(self._free):
            self._grow(max(len(self.owner) * 3 // 2, len(self) + count))
        first = len(self._free) - count
        slots = np.array(self._free[first:], np.int64)
        tree.put(self.table, slots, values)
        self.owner[slots] = rows
        self.at[rows] = slots
        del self._free[first:]

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
        if self._unknown:
            self._unknown -= int(np.count_nonzero(slots == UNKNOWN))
        slots = slots[slots >= 0]
        self.at[rows] = ABSENT
        self.owner[slots] = -1
        self._empty(slots)
        self._free.extend(slots.tolist())
        if len(self.owner) > LEAST and len(self) < len(self.owner) // 4:
            self._shrink(max(LEAST, len(self.owner) // 2))

    def keep(self, rows: np.ndarray) -> None:
        """Forget all values but those of `rows`, bool, and make whole what an interrupted call has left half done."""
        owner = self.owner
        owner[(owner >= 0) & ~rows[owner]] = -1
        unknown = rows & (self.at == UNKNOWN)
        self.at[:] = np.where(unknown, UNKNOWN, ABSENT)
        used, free = np.flatnonzero(owner >= 0), np.flatnonzero(owner < 0)
        self.at[owner[used]] = used
        self._unknown = int(np.count_nonzero(unknown))
        self._empty(free)
        self._free = free[::-1].tolist()
        if len(owner) > LEAST and len(used) < len(owner) // 4:
            self._shrink(max(LEAST, 2 * len(used)))

    def take(self, rows: np.ndarray) -> Tree:
        """A copy of the values of `rows`, int64 [n], all of which have one: a tree [n, ...]."""
        slots = self.at[rows]
        return tree.map(lambda leaf: rows_of(leaf, slots), self.table)

    def _empty(self, slots: np.ndarray) -> None:
        """Let go of ragged values, which cost as long as they are there."""
        if not self._is_ragged:
            return
        for leaf in tree.leaves(self.table):
            if isinstance(leaf, RaggedLeaf):
                for slot in slots.tolist():
                    leaf.take(slot, slot + 1)

    def _grow(self, slots: int) -> None:
        """Move all values to a table of so many slots."""
        before = len(self.owner)
        owner = np.full(slots, -1, np.int64)
        owner[:before] = self.owner
        # First the table, which is never shorter than `owner`.
        self.table, self.owner = self._copied(before, slots), owner
        self._free = [*range(slots - 1, before - 1, -1), *self._free]

    def _shrink(self, slots: int) -> None:
        """Move all values to the first slots, and let go of the others."""
        high = np.flatnonzero(self.owner[slots:] >= 0) + slots
        low = np.flatnonzero(self.owner[:slots] < 0)[: len(high)]
        tree.put(self.table, low, tree.map(lambda leaf: rows_of(leaf, high), self.table))
        rows = self.owner[high]
        self.owner[np.concatenate([high, low])] = np.concatenate([np.full(len(high), -1), rows])
        self.at[rows] = low
        table = self._copied(slots, slots)
        self.owner = self.owner[:slots].copy()
        self.table = table
        self._free = np.flatnonzero(self.owner < 0)[::-1].tolist()

    def _copied(self, count: int, slots: int) -> Tree:
        """A table of so many slots, with the values of the first `count` ones."""
        table = allocate(self._storage, self.specs, slots)
        tree.put(table, slice(0, count), tree.map(lambda leaf: leaf[:count], self.table))
        return table

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
        if ours.dtype.hasobject:
            alike = np.array([_same(a, b) for a, b in zip(ours, theirs, strict=True)], np.bool_)
        elif (ours.nbytes < SMALL and ours.tobytes() == theirs.tobytes()) or np.array_equal(ours, theirs):
            continue
        else:
            equal = (ours == theirs) | ((ours != ours) & (theirs != theirs))  # noqa: PLR0124 - NaN is not itself
            alike = equal.reshape(len(equal), -1).all(1)
        if not alike.all():
            same = alike if same is None else same & alike
    return same


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        if not isinstance(b, np.ndarray) or a.shape != b.shape:
            return False
        return all(map(_same, a.flat, b.flat)) if a.dtype.hasobject else same_rows([a[None]], [b[None]]) is None
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(_same(value, b[key]) for key, value in a.items())
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(_same, a, b))
    return not isinstance(b, (np.ndarray, dict, tuple)) and bool(a == b or (a != a and b != b))  # noqa: PLR0124


def row_numbers(rows: Any) -> np.ndarray:
    """Rows as int64 [n], also where they are a slice."""
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


def are_alike(numbers: np.ndarray) -> bool:
    """Whether all are the same; to count costs a fraction of `all`."""
    return int(np.count_nonzero(numbers == numbers[0])) == len(numbers)
