"""Where rows go when they are handed out in another order than that of their arrival."""

from __future__ import annotations

import numpy as np

from outrider import tree
from outrider.tree import Tree

__all__ = ["interleave", "rank"]


def interleave(steps: Tree, finals: Tree, lengths: np.ndarray) -> Tree:
    """Put the row of `finals` behind the rows of each episode: [S, ...] and [E, ...] give [S + E, ...]."""
    total, ends = int(lengths.sum()) + len(lengths), np.cumsum(lengths + 1) - 1
    is_step = np.ones(total, np.bool_)
    is_step[ends] = False

    def join(rows: np.ndarray, last: np.ndarray) -> np.ndarray:
        out = np.empty((total, *rows.shape[1:]), rows.dtype)
        out[is_step] = rows
        out[ends] = last
        return out

    return tree.map(join, steps, finals)


def rank(lanes: np.ndarray, count: int) -> np.ndarray:
    """The how-manieth of its lane each row is, from 0, int64 [R], for the lanes of rows in order of time."""
    order = np.argsort(lanes, kind="stable")
    counts = np.bincount(lanes, minlength=count)
    found = np.empty(len(lanes), np.int64)
    found[order] = np.arange(len(lanes)) - np.repeat(np.cumsum(counts) - counts, counts)
    return found
