"""Copies of rows of a ring: the one place where views read observations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from outrider import tree
from outrider.replay.frames import PLAIN
from outrider.replay.sparse import rows_of
from outrider.tree import Tree

if TYPE_CHECKING:
    from outrider.replay.frames import Frames
    from outrider.replay.ring import Ring

__all__ = ["acted_upon", "behind", "blank", "observations", "part_of", "take"]


def take(columns: Tree, rows: np.ndarray) -> Tree:
    """A copy of rows, int64 [...], of each leaf: a tree [..., *shape of a row]."""
    if type(columns) is np.ndarray:
        return rows_of(columns, rows)
    if columns == {}:
        return {}
    return tree.map(lambda leaf: rows_of(leaf, rows), columns)


def acted_upon(ring: Ring, rows: np.ndarray, part: str | None = None) -> Tree:
    """A copy of the observations that the steps in `rows`, int64 [...], were taken from; see `observations`."""
    if ring.frames is not None:
        return _stacks(ring, ring.frames, rows, part)
    return take(part_of(ring.obs, part), rows)


def observations(ring: Ring, index: np.ndarray, part: str | None = None) -> Tree:
    """A copy of observations: a tree [..., *shape of a row].

    Args:
        ring: where they are.
        index: int64 [...]: rows, or ~slot where it is among the true last observations.
        part: a key of observations that are dicts, of which nothing else is wanted.
    """
    if ring.frames is not None:
        return _stacks(ring, ring.frames, index, part)
    stored, finals = part_of(ring.obs, part), part_of(ring.finals.table, part)
    flat = index.reshape(-1)
    is_final = flat < 0
    if not np.count_nonzero(is_final):
        return take(stored, index)
    final = np.flatnonzero(is_final)
    slots = ~flat[final]
    # Any row will do in place of those.
    rows = np.maximum(index, 0)

    def gather(leaf: Any, last: Any) -> np.ndarray:
        found = rows_of(leaf, rows)
        found.reshape(len(flat), *found.shape[index.ndim :])[final] = rows_of(last, slots)
        return found

    return tree.map(gather, stored, finals)


def _stacks(ring: Ring, frames: Frames, index: np.ndarray, part: str | None) -> Tree:
    """`observations` where frames of stacks are stored once."""
    flat, count = index.reshape(-1), frames.count
    places = frames.places(flat, ring.finals.owner, ring.num_envs).reshape(-1)
    final = np.flatnonzero(flat < 0)
    slots, newest = ~flat[final], final * count + count - 1
    old = places < 0
    old[newest] = False
    older = np.flatnonzero(old)
    codes = ~places[older]
    # Any row will do in place of those.
    np.maximum(places, 0, out=places)
    rows = np.ascontiguousarray(places[count - 1 :: count])

    def gather(leaf: Any, last: Any, number: int) -> np.ndarray:
        if number == PLAIN:
            found: np.ndarray = rows_of(leaf, rows)
            found[final] = rows_of(last, slots)
            return found.reshape(*index.shape, *found.shape[1:])
        found = leaf.take(places, 0)
        found[newest] = last.take(slots, 0)
        found[older] = frames.older(number).take(codes, 0)
        return found.reshape(*index.shape, count, *found.shape[1:])

    return tree.map(gather, part_of(ring.obs, part), part_of(ring.finals.table, part), part_of(frames.numbers, part))


def behind(ring: Ring, rows: np.ndarray) -> np.ndarray:
    """The `index` of the observations behind the steps in these rows, int64 [...]; it must be known where one ended."""
    slots = ring.finals.at[rows]
    index: np.ndarray = np.where(slots >= 0, ~slots.astype(np.int64), (rows + ring.num_envs) % ring.rows)
    return index


def blank(columns: Tree, specs: Tree, places: np.ndarray, axes: int = 1) -> None:
    """Write zeros, or empty values, to some rows of each leaf of a tree [..., *shape of a row].

    Args:
        columns: contiguous arrays.
        specs: tree of `LeafSpec`.
        places: int64 [n], as if the first `axes` axes were one.
        axes: how many there are before those of a row.
    """
    if len(places):
        empty = tree.map(lambda spec: spec.zeros(1), specs)

        def write(leaf: Any, value: Any) -> None:
            leaf.reshape(math.prod(leaf.shape[:axes]), *leaf.shape[axes:])[places] = value

        tree.map(write, columns, empty)


def part_of(columns: Tree, part: str | None) -> Tree:
    """All columns, or those below a key."""
    return columns if part is None else columns[part]
