"""Sums over many numbers that change, for drawing in proportion to them. Import this module only where it is used.

A node has eight children, which share a line of the cache, so that a million numbers are seven steps from the total.
Each node also knows the greatest number below it. Sums are computed from the children and never corrected by a
difference: they are the same whatever came before, and exactly zero above zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["FOREIGN", "INVALID", "SumTree"]

INVALID, FOREIGN = -1, -2
"""What `update` returns in place of a count: a priority that is none; a serial number that was never given."""

LINE = 64
"""Bytes of a line of the cache, and of the eight children of a node."""


class SumTree:
    """Numbers float64 [rows], all zero at first, with their sums and their maximum.

    Attributes:
        sums: float64 [nodes, 8]; the numbers themselves, then the sums of eight, of 64, and so on. The total is the
            first number of the last node.
        tops: float64 [nodes, 8]; the maxima that belong to the sums. There are none of the numbers themselves.
        starts: int64 [levels], the first node of the numbers, of the sums of eight, and so on.
        leaves: float64 [rows], a view of the numbers.

    Example:
        >>> tree = SumTree(10)
        >>> tree.fill(np.array([3, 9]), 2.0)
        >>> tree.total, tree.top, tree.find(np.array([0.0, 0.49, 0.5, 0.99]))
        (4.0, 2.0, array([3, 3, 9, 9]))
    """

    def __init__(self, rows: int) -> None:
        starts, width = [0], rows
        while width > 1 or len(starts) == 1:
            width = -(-width // 8)
            starts.append(starts[-1] + width)
        self.starts = np.array(starts, np.int64)
        nodes = starts[-1] + 1
        raw = np.zeros(nodes * 8 + LINE // 8)
        skipped = -raw.ctypes.data % LINE // 8
        self.sums = raw[skipped : skipped + nodes * 8].reshape(nodes, 8)
        # Pages that are never written cost nothing: the part that would belong to the numbers.
        self.tops = np.zeros((nodes, 8))
        self.leaves = self.sums.reshape(-1)[:rows]

    @property
    def total(self) -> float:
        """The sum of all numbers."""
        return float(self.sums[-1, 0])

    @property
    def top(self) -> float:
        """The greatest number."""
        return float(self.tops[-1, 0])

    @property
    def nbytes(self) -> int:
        """Bytes of what is written to."""
        return int(self.sums.nbytes + self.tops[self.starts[1] :].nbytes)

    def fill(self, rows: np.ndarray, value: float) -> None:
        """Set the numbers of `rows`, int64 [n], to `value`."""
        _fill(self.sums, self.tops, self.starts, rows, value)

    def set_all(self, values: np.ndarray) -> None:
        """Set the numbers of all rows, float64 [rows]."""
        self.leaves[:] = values
        _refresh(self.sums, self.tops, self.starts, np.arange(len(values)))

    def find(self, uniforms: np.ndarray) -> np.ndarray:
        """The rows, int64 [n], at these fractions of the total, float64 [n] from 0 to 1; none whose number is zero.

        The total is not zero.
        """
        rows: np.ndarray = _find(self.sums, self.starts, uniforms)
        return rows

    def draw(self, heads: np.ndarray, rows: int, uniforms: np.ndarray) -> np.ndarray:
        """As `find`, but the serial numbers of the newest steps in these rows of a ring of `rows` rows."""
        serials: np.ndarray = _draw(self.sums, self.starts, heads, rows, uniforms)
        return serials

    def update(self, bounds: Any, serials: np.ndarray, values: np.ndarray, power: tuple[float, float]) -> int:
        """Set the numbers of steps of a ring to powers of their priorities, in order: of two for a step, the last.

        Args:
            bounds: (tails, heads, rows) of the ring.
            serials: int64 [n].
            values: float64 [n], priorities.
            power: the exponent, and the greatest number allowed.

        Returns:
            How many of the steps were not there any more, `INVALID` or `FOREIGN`; then nothing was changed.
        """
        count: int = _update((self.sums, self.tops, self.starts), bounds, serials, values, power)
        return count

    def check(self) -> None:
        """Verify sums and maxima.

        Raises:
            AssertionError: one is wrong.
        """
        sums = self.sums.reshape(-1)
        tops = sums
        assert np.isfinite(sums).all(), "a number is not finite"
        assert (sums >= 0).all(), "a number is negative"
        assert not sums[len(self.leaves) : self.starts[1] * 8].any(), "there is a number behind the last row"
        for below, here in zip(self.starts[:-1], self.starts[1:], strict=True):
            count = here - below
            nodes = sums[below * 8 : here * 8].reshape(count, 2, 2, 2)
            found = sums[here * 8 : here * 8 + count]
            assert (found == nodes.sum(3).sum(2).sum(1)).all(), "a sum is not that of its children"
            greatest = tops[below * 8 : here * 8].reshape(count, 8).max(1)
            tops = self.tops.reshape(-1)
            assert (tops[here * 8 : here * 8 + count] == greatest).all(), "a maximum is not that of its children"


# numba has no types.


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _larger(a: float, b: float) -> float:
    return a if a > b else b  # noqa: FURB136 - max() also looks for NaN, which takes several times as long


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _refresh(sums: Any, tops: Any, starts: Any, nodes: Any) -> None:
    """Compute what is above the rows `nodes`, int64 [n], level by level; `nodes` is used up.

    Neighbours have the same parents, each of which is computed once: a block that comes costs little more than a row.
    """
    count = len(nodes)
    for level in range(1, len(starts)):
        below, here = starts[level - 1], starts[level]
        greatest = sums if level == 1 else tops
        kept, last = 0, -1
        for i in range(count):
            node = nodes[i] >> 3
            if node == last:
                continue
            last = node
            nodes[kept] = node
            kept += 1
            c = sums[below + node]
            sums[here + (node >> 3), node & 7] = ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7]))
            t = greatest[below + node]
            left = _larger(_larger(t[0], t[1]), _larger(t[2], t[3]))
            right = _larger(_larger(t[4], t[5]), _larger(t[6], t[7]))
            tops[here + (node >> 3), node & 7] = _larger(left, right)
        count = kept


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _fill(sums: Any, tops: Any, starts: Any, rows: Any, value: float) -> None:
    for row in rows:
        sums[row >> 3, row & 7] = value
    _refresh(sums, tops, starts, rows.copy())


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _child(children: Any, x: float) -> tuple[int, float]:
    """Which child a place in a node is in, and where in that child; without branches, which nobody could predict."""
    p0 = children[0]
    p1 = p0 + children[1]
    p2 = p1 + children[2]
    p3 = p2 + children[3]
    p4 = p3 + children[4]
    p5 = p4 + children[5]
    p6 = p5 + children[6]
    child = (x >= p0) + (x >= p1) + (x >= p2) + (x >= p3) + (x >= p4) + (x >= p5) + (x >= p6)
    before = p0 if x >= p0 else 0.0
    before = p1 if x >= p1 else before
    before = p2 if x >= p2 else before
    before = p3 if x >= p3 else before
    before = p4 if x >= p4 else before
    before = p5 if x >= p5 else before
    before = p6 if x >= p6 else before
    return child, x - before


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _find(sums: Any, starts: Any, uniforms: Any) -> Any:
    """See `SumTree.find`. All go down together, level by level, so that the memory is asked for many nodes at once."""
    count = len(uniforms)
    places = uniforms * sums[starts[-1], 0]
    found = np.zeros(count, np.int64)
    for level in range(len(starts) - 2, -1, -1):
        start = starts[level]
        for i in range(count):
            children = sums[start + found[i]]
            child, places[i] = _child(children, places[i])
            # A place may lie behind the last child that is not zero, through rounding: it means that child's end.
            while children[child] == 0.0 and child > 0:
                child -= 1
                places[i] = children[child]
            found[i] = (found[i] << 3) + child
    return found


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _draw(sums: Any, starts: Any, heads: Any, rows: int, uniforms: Any) -> Any:
    found = _find(sums, starts, uniforms)
    lanes = len(heads)
    depth = rows // lanes
    for i in range(len(found)):
        slot, lane = divmod(found[i], lanes)
        newest = heads[lane] - 1
        found[i] = (newest - (newest - slot) % depth) * lanes + lane
    return found


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _update(tree: Any, bounds: Any, serials: Any, values: Any, power: Any) -> int:
    sums, tops, starts = tree
    tails, heads, rows = bounds
    exponent, most = power
    count, lanes = len(serials), len(heads)
    least = np.finfo(np.float64).tiny
    scaled, present = np.empty(count, np.float64), np.empty(count, np.int64)
    kept = 0
    for i in range(count):
        position, lane = divmod(serials[i], lanes)
        if position < 0 or position >= heads[lane]:
            return FOREIGN
        # Not a number is not larger than anything.
        if not values[i] >= 0.0 or values[i] == np.inf:
            return INVALID
        # A priority above zero stays above zero, and one of zero is zero whatever the exponent.
        number = _larger(values[i] ** exponent, least) if values[i] > 0.0 else 0.0
        if number > most:
            return INVALID
        if position >= tails[lane]:
            scaled[kept], present[kept] = number, serials[i] % rows
            kept += 1
    present = present[:kept]
    for i in range(kept):
        sums[present[i] >> 3, present[i] & 7] = scaled[i]
    _refresh(sums, tops, starts, present)
    return count - kept
