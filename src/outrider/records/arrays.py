"""The few array operations that records need, the same for NumPy arrays and torch tensors.

Ragged leaves are arrays of objects, in a record of tensors as well: its indices may have to become NumPy arrays.
Nothing here imports torch: a tensor can only come in once torch is there, and what has no common spelling is asked of
`outrider.torch.convert`, imported when a tensor is met.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from outrider import tree
from outrider.errors import ConfigError, explain
from outrider.tree import Tree
from outrider.values import empty_like, objects

__all__ = [
    "Array",
    "IntArray",
    "cast",
    "concatenate",
    "converter",
    "copy",
    "gather",
    "gather_split",
    "index_of",
    "like",
    "moved",
    "ranges",
    "row_selection",
    "to_numpy",
    "zeros_like",
]

Array: TypeAlias = Any
"""A NumPy array, or a torch tensor in a record made by `.torch()`; `Any` so that this package needs no torch."""

IntArray: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


def converter() -> Any:
    """The module that knows torch; imported only when torch is wanted."""
    return importlib.import_module("outrider.torch.convert")


def to_numpy(array: Array) -> np.ndarray[Any, Any]:
    """Return a NumPy array: itself, or the data of a tensor (detached, moved to the CPU), or `np.asarray` of a list."""
    if isinstance(array, np.ndarray):
        return array
    if hasattr(array, "detach"):
        array = array.detach().cpu().numpy()
    return np.asarray(array)


def like(reference: Array, value: Any) -> Array:
    """Return `value` as the kind of array that `reference` is, on its device."""
    if isinstance(reference, np.ndarray):
        return to_numpy(value)
    return converter().tensor(value, reference.device)


def moved(states: Tree, axis: Any, where: str) -> Tree:
    """Recurrent states [n, ...] with their first axis at `axis`, as a network wants them; contiguous, as cuDNN does.

    Raises:
        ConfigError: some have no such axis; names the caller by `where`.
    """
    for path, leaf in tree.items(states, "state"):
        if isinstance(axis, bool) or not isinstance(axis, int) or not -leaf.ndim <= axis < leaf.ndim:
            raise ConfigError(
                explain(
                    expected=f"an axis of the states, which are {tuple(leaf.shape)} at '{path}'",
                    found=repr(axis),
                    where=f"{where}: state_axis",
                    fix="pass the state_axis of the TorchPolicy that collected them: 0, or 1 for torch.nn.LSTM and GRU",
                )
            )

    def move(leaf: Array) -> Array:
        is_tensor = hasattr(leaf, "detach")
        return leaf.movedim(0, axis).contiguous() if is_tensor else np.ascontiguousarray(np.moveaxis(leaf, 0, axis))

    return tree.map(move, states)


def cast(array: Array, dtype: Any) -> Array:
    """Return an array of another dtype; itself if it has it."""
    return array.astype(dtype, copy=False) if isinstance(array, np.ndarray) else array.to(dtype)


def copy(array: Array) -> Array:
    """Return a copy that shares no memory."""
    return array.copy() if isinstance(array, np.ndarray) else array.clone()


def zeros_like(reference: Array, shape: tuple[int, ...]) -> Array:
    """Return zeros of another shape, of the kind and dtype of `reference`; empty values if it is a ragged leaf."""
    if isinstance(reference, np.ndarray):
        if reference.dtype.hasobject and reference.size:
            return objects([empty_like(reference.flat[0])] * math.prod(shape), shape)
        return np.zeros(shape, reference.dtype)
    return reference.new_zeros(shape)


def index_of(leaf: Array, index: Any) -> Any:
    """Return `index` (an index array, a mask or a slice) as something that `leaf` can be indexed with."""
    return to_numpy(index) if isinstance(leaf, np.ndarray) and not isinstance(index, slice) else index


def concatenate(arrays: Sequence[Array]) -> Array:
    """Join arrays of one kind along their first axis."""
    if isinstance(arrays[0], np.ndarray):
        return np.concatenate(arrays)
    return converter().concatenate(arrays)


def gather(columns: Tree, index: Array | slice) -> Tree:
    """Return the rows `index` of each leaf: views for a slice, copies for an index array (whose values are >= 0)."""

    def rows(leaf: Array) -> Array:
        if isinstance(leaf, np.ndarray) and not isinstance(index, slice):
            return leaf.take(to_numpy(index), axis=0)  # a quarter of the cost of leaf[index]
        return leaf[index]

    return tree.map(rows, columns)


def gather_split(stored: Tree, final: Tree, index: Array) -> Tree:
    """Gather from two tables: `i >= 0` is row i of `stored`, `i < 0` is row ~i of `final`."""
    split = index < 0
    in_stored = index.clip(0)
    in_final = ~index[split]
    if not len(in_final):
        return gather(stored, in_stored)

    def rows(leaf: Array, last: Array) -> Array:
        finals = gather(last, in_final)
        if not len(leaf):
            return finals
        out = gather(leaf, in_stored)
        out[index_of(out, split)] = finals
        return out

    return tree.map(rows, stored, final)


def row_selection(key: Any, count: int, where: str) -> slice | IntArray:
    """Return what `key` selects of `count` rows: a slice with 0 <= start <= stop and step >= 1, or indices >= 0.

    Args:
        key: a slice, an array or list of integers (negative ones count from the end), or a bool mask of `count` values.
        count: number of rows.
        where: names the caller in errors.

    Raises:
        ConfigError: `key` is of another kind, or a mask of another length.
        IndexError: an index is out of range.
    """
    if isinstance(key, slice):
        chosen = range(count)[key]
        if chosen.step > 0:
            return slice(chosen.start, max(chosen.start, chosen.stop), chosen.step)
        return np.asarray(chosen, np.int64)
    index = to_numpy(key) if isinstance(key, (list, np.ndarray)) or hasattr(key, "detach") else np.asarray(None)
    if index.dtype == np.bool_ and index.shape == (count,):
        return np.flatnonzero(index)
    if index.size == 0 and index.ndim == 1:
        return np.zeros(0, np.int64)
    if index.ndim != 1 or index.dtype.kind not in "iu":
        found = f"{key!r}" if index.ndim == 0 else f"an array of shape {index.shape}, dtype {index.dtype}"
        fix = f"use a slice such as [{key}:{key + 1}]" if isinstance(key, int) else "index with one of those"
        wanted = f"a slice, a 1-D array of integers or a bool mask of {count} values"
        raise ConfigError(explain(expected=wanted, found=found, where=where, fix=fix))
    if index.min() < -count or index.max() >= count:
        msg = f"{where}: indices reach from {index.min()} to {index.max()}, but there are only {count} rows"
        raise IndexError(msg)
    index = index.astype(np.int64)
    return np.where(index < 0, index + count, index)


def ranges(starts: IntArray, lengths: IntArray) -> IntArray:
    """Return the indices of runs, one after the other: starts[0], starts[0]+1, ... (lengths[0] of them), starts[1], ...

    Example:
        >>> ranges(np.array([5, 0]), np.array([3, 2]))
        array([5, 6, 7, 0, 1])
    """
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)
