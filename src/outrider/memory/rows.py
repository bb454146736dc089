"""Rows of leaves in a mapping: one array [capacity, ...] for each leaf of a tree of `LeafSpec`.

A row number means the same row in every array, so that one number says where a transition is. Step t of lane n of a
block that begins at row `base` is row `base + t * num_envs + n`.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider import tree
from outrider.memory.mapping import Mapping
from outrider.memory.ragged import RaggedLeaf
from outrider.spec import LeafSpec, RaggedSpec
from outrider.tree import Tree

__all__ = ["Layout", "Rows"]


@dataclass(frozen=True)
class Layout:
    """Where the leaves of a tree of specs stand in a mapping: bytes [start, stop), leaf after leaf, page-aligned."""

    specs: Tree
    capacity: int
    start: int
    stop: int

    @classmethod
    def fit(cls, specs: Tree, start: int, stop: int, most: int | None = None) -> Layout:
        """The layout with the most rows (at most `most`) that fits into bytes [start, stop)."""
        found: list[LeafSpec] = tree.leaves(specs)
        spare = mmap.PAGESIZE * (len(found) + 1)
        capacity = (stop - start - spare) // max(1, sum(spec.nbytes for spec in found))
        return cls(specs, capacity if most is None else min(capacity, most), start, stop)

    def offsets(self) -> list[int]:
        """First byte of each leaf, in the order of `tree.leaves`."""
        return self._places()[0]

    @property
    def end(self) -> int:
        """First byte behind the last leaf."""
        return self._places()[1]

    def _places(self) -> tuple[list[int], int]:
        found, at = [], _up(self.start)
        for spec in tree.leaves(self.specs):
            found.append(at)
            at = _up(at + spec.nbytes * self.capacity)
        return found, at


class Rows:
    """The arrays of a layout in a mapping.

    Attributes:
        arrays: tree of arrays [capacity, ...] over the whole layout, for those who read and write by row number; a
            `RaggedLeaf`, which belongs to this process alone, where the spec is ragged.
        ragged: those leaves by their place among all.
    """

    def __init__(self, mapping: Mapping, layout: Layout) -> None:
        self.layout = layout
        self._mapping = mapping
        places = zip(tree.leaves(layout.specs), layout.offsets(), strict=True)
        self._leaves = [(*_stand_in(spec), offset, spec.nbytes) for spec, offset in places]
        self._parts: dict[str, tuple[Tree, int, int]] = {}
        first = 0
        for key, specs in layout.specs.items() if isinstance(layout.specs, dict) else ():
            self._parts[key] = specs, first, first + len(tree.leaves(specs))
            first = self._parts[key][2]
        self.ragged = {
            index: RaggedLeaf(spec, layout.capacity)
            for index, spec in enumerate(tree.leaves(layout.specs))
            if isinstance(spec, RaggedSpec)
        }
        whole = np.frombuffer(mapping.buffer, np.uint8)
        self.leaves: list[Any] = list(self._views(self._leaves, whole, 0, (layout.capacity,)))
        for index, leaf in self.ragged.items():
            self.leaves[index] = leaf
        self.arrays: Tree = tree.unflatten(layout.specs, self.leaves)

    def view(self, root: np.ndarray, base: int, leading: tuple[int, ...]) -> Tree:
        """Return arrays [*leading, ...] that begin at row `base` and keep `root`, bytes of the whole mapping, alive.

        Of ragged leaves: new arrays of objects [*leading].
        """
        views = self._views(self._leaves, root, base, leading)
        for index, leaf in self.ragged.items():
            views[index] = leaf.block(base, leading)
        return tree.unflatten(self.layout.specs, views)

    def view_part(self, key: str, root: np.ndarray, base: int, leading: tuple[int, ...]) -> Tree:
        """`view(...)[key]`, without making the others; none of its leaves may be ragged."""
        specs, first, last = self._parts[key]
        views = self._views(self._leaves[first:last], root, base, leading)
        return views[0] if isinstance(specs, LeafSpec) else tree.unflatten(specs, views)

    @staticmethod
    def _views(leaves: Any, root: np.ndarray, base: int, leading: tuple[int, ...]) -> list[np.ndarray]:
        return [
            np.ndarray((*leading, *shape), dtype, root, offset + base * nbytes)
            for shape, dtype, offset, nbytes in leaves
        ]

    def discard(self, start: int, stop: int) -> None:
        """Give the memory of rows [start, stop) back to the system."""
        for *_, offset, nbytes in self._leaves:
            self._mapping.discard(offset + start * nbytes, offset + stop * nbytes)
        for leaf in self.ragged.values():
            leaf.take(start, stop)


def _stand_in(spec: LeafSpec) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of a row in the mapping, where ragged leaves have none."""
    return ((0,), np.dtype(np.uint8)) if isinstance(spec, RaggedSpec) else (spec.shape, spec.dtype)


def _up(at: int) -> int:
    return -(-at // mmap.PAGESIZE) * mmap.PAGESIZE
