"""Who has which rows: blocks are taken, lent with a root array, and come back when that array dies.

Freed blocks are kept warm for a while, because pages that were never touched cost ten times the copy into them, and are
then given back to the system.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from outrider.errors import OutriderError, explain

if TYPE_CHECKING:
    from outrider.memory.mapping import Mapping
    from outrider.memory.rows import Rows

__all__ = ["RowPool"]

PATIENCE = 6
"""A block that has been free for this many takes is given back to the system."""


class RowPool:
    """Hands out ranges of row numbers of a mapping and takes them back.

    Example:
        >>> from outrider.memory.mapping import PrivateMapping
        >>> from outrider.memory.rows import Layout, Rows
        >>> from outrider.spec import LeafSpec
        >>> mapping = PrivateMapping()
        >>> layout = Layout.fit(LeafSpec((4,), np.dtype("float32")), 0, mapping.nbytes)
        >>> pool = RowPool(mapping, [Rows(mapping, layout)])
        >>> base = pool.take(64)
        >>> root = pool.lend(base, 64)
        >>> del root
        >>> pool.rows_out
        0
    """

    def __init__(self, mapping: Mapping, rows: list[Rows]) -> None:
        self._mapping = mapping
        self._rows = rows
        self._end = 0
        self._capacity = min(r.layout.capacity for r in rows)
        self._tick = 0
        self._warm: list[tuple[int, int, int]] = []  # start, rows, tick of the return; oldest first
        self._cold: list[tuple[int, int]] = []  # start, rows; sorted and merged
        # Weak references call back anywhere, inside garbage collection too: appending is all they may do.
        self._returned: deque[tuple[int, int]] = deque()
        self._loans: dict[int, weakref.ref[np.ndarray]] = {}
        self._out = 0
        self._pid = os.getpid()

    def add(self, rows: Rows) -> None:
        """Let the pool also look after another set of rows with the same row numbers."""
        if rows.layout.capacity < self._end:
            msg = "the rows that are out already do not fit into the new columns"
            raise OutriderError(msg)
        self._rows.append(rows)
        self._capacity = min(self._capacity, rows.layout.capacity)

    @property
    def capacity(self) -> int:
        """First row number that it never hands out."""
        return self._capacity

    def restrict(self, start: int, stop: int) -> None:
        """Hand out rows [start, stop) only: the others belong to pools of other processes on the same mapping."""
        self._end = max(self._end, start)
        self._capacity = min(self._capacity, stop)

    def take(self, count: int) -> int:
        """Return the first of `count` consecutive rows that are nobody else's; their content is anything.

        Raises:
            OutriderError: more rows are held than the address space has room for.
        """
        self._collect()
        self._tick += 1
        self._cool(self._tick - PATIENCE)
        self._out += count
        for i in reversed(range(len(self._warm))):
            if self._warm[i][1] == count:
                return self._warm.pop(i)[0]
        for i, (start, size) in enumerate(self._cold):
            if size >= count:
                self._cold[i : i + 1] = [(start + count, size - count)] if size > count else []
                return start
        if self._end + count > self._capacity:
            self._out -= count
            raise OutriderError(
                explain(
                    expected=f"at most {self._capacity - self._out} more rows",
                    found=f"{count} rows asked for while {self._out} are held",
                    where="memory of the rollouts",
                    fix="let go of rollouts that are no longer needed, or copy what is kept",
                )
            )
        self._end += count
        return self._end - count

    def give_back(self, base: int, count: int) -> None:
        """Return rows that were taken and not lent."""
        self._out -= count
        self._warm.append((base, count, self._tick))

    def lend(self, base: int, count: int) -> np.ndarray:
        """Return a fresh array over the mapping; rows [base, base + count) come back when it and its views are gone."""
        root = np.frombuffer(self._mapping.buffer, np.uint8)
        returned = self._returned
        self._loans[base] = weakref.ref(root, lambda _: returned.append((base, count)))
        return root

    @property
    def rows_out(self) -> int:
        """Rows that are taken or lent at present."""
        self._collect()
        return self._out

    def trim(self) -> None:
        """Give the memory of every free row back to the system now."""
        self._collect()
        self._cool(self._tick)

    def _collect(self) -> None:
        while self._returned:
            base, count = self._returned.popleft()
            del self._loans[base]
            self.give_back(base, count)

    def _cool(self, tick: int) -> None:
        """Give back what has been free since `tick` or earlier; a forked child leaves its parent's memory alone."""
        if os.getpid() != self._pid:
            return
        while self._warm and self._warm[0][2] <= tick:
            start, count, _ = self._warm.pop(0)
            for rows in self._rows:
                rows.discard(start, start + count)
            self._merge(start, count)

    def _merge(self, start: int, count: int) -> None:
        ranges = sorted([*self._cold, (start, count)])
        merged: list[tuple[int, int]] = []
        for begin, size in ranges:
            if merged and merged[-1][0] + merged[-1][1] == begin:
                merged[-1] = (merged[-1][0], merged[-1][1] + size)
            else:
                merged.append((begin, size))
        if merged and merged[-1][0] + merged[-1][1] == self._end:
            self._end = merged.pop()[0]
        self._cold = merged
