"""What the `check` methods of the records have in common. Each raises a SpecError that names the column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from outrider import tree
from outrider.errors import SpecError, explain
from outrider.records import arrays
from outrider.records.arrays import Array
from outrider.tree import Tree

__all__ = ["blind_rows", "count_rows", "dtypes", "leading", "require", "reward", "same_columns", "same_rows"]

_FLAGS = ("terminated", "truncated", "cut", "valid", "mask", "blind")
_NUMBERS = ("episode_id", "step", "version", "env_id", "lengths", "final_index", "obs_index", "next_index")
_DTYPES = dict.fromkeys(_FLAGS, np.dtype(np.bool_)) | dict.fromkeys(_NUMBERS, np.dtype(np.int64))
_FLOAT64, _FLOAT32 = np.dtype(np.float64), np.dtype(np.float32)


def count_rows(columns: Tree) -> int:
    """The number of rows of a tree of columns; 0 for one without leaves."""
    leaves = tree.leaves(columns)
    return int(leaves[0].shape[0]) if leaves else 0


def _dtype(array: Array) -> str:
    return str(array.dtype).removeprefix("torch.")


def _refuse(record: Any, path: str, expected: object, found: object) -> None:
    where = f"{type(record).__name__}.check: column '{path}'"
    raise SpecError(explain(expected=expected, found=found, where=where, fix="correct what made this record"))


def leading(record: Any, names: Sequence[str], shape: tuple[int, ...]) -> None:
    """Refuse columns whose leaves do not begin with the axes `shape`."""
    for name in names:
        for path, leaf in tree.items(getattr(record, name), name):
            if tuple(leaf.shape[: len(shape)]) != shape:
                _refuse(record, path, f"leading axes {shape}", f"shape {tuple(leaf.shape)}")


def reward(record: Any, axes: int) -> None:
    """Refuse rewards that are, behind the first `axes` axes, neither numbers nor vectors."""
    if record.reward.ndim > axes + 1:
        _refuse(
            record, "reward", f"{axes} axes, or {axes + 1} of vector rewards", f"shape {tuple(record.reward.shape)}"
        )


def dtypes(record: Any) -> None:
    """Refuse flags that are not bool, ids that are not int64, a reward that is not float64 (float32 in torch)."""
    for name, dtype in _DTYPES.items():
        column = getattr(record, name, None)
        if hasattr(column, "dtype") and not _is_of(column, dtype):
            _refuse(record, name, f"dtype {dtype}", f"dtype {_dtype(column)}")
    expected = _FLOAT64 if isinstance(record.reward, np.ndarray) else _FLOAT32
    if not _is_of(record.reward, expected):
        _refuse(record, "reward", f"dtype {expected}", f"dtype {_dtype(record.reward)}")


def _is_of(array: Array, dtype: np.dtype[Any]) -> bool:
    # The name of a dtype costs ten times as much as a comparison.
    return bool(array.dtype == dtype) if isinstance(array, np.ndarray) else _dtype(array) == dtype.name


def same_rows(record: Any, name: str, other: str, axes: int = 1) -> None:
    """Refuse a side table `other` whose rows differ in structure, shape or dtype from those of column `name`."""

    def compare(row: Array, last: Array) -> None:
        expected, found = (tuple(row.shape[axes:]), _dtype(row)), (tuple(last.shape[1:]), _dtype(last))
        if expected != found:
            _refuse(record, other, f"rows of {expected} as in '{name}'", f"rows of {found}")

    try:
        tree.map(compare, getattr(record, name), getattr(record, other))
    except SpecError as error:
        msg = f"{type(record).__name__}.check: columns '{name}' and '{other}': {error}"
        raise SpecError(msg) from None


def require(holds: np.ndarray[Any, Any], column: str, expected: str, found: np.ndarray[Any, Any]) -> None:
    """Refuse when a condition does not hold everywhere; name the first place and the value there."""
    if holds.all():
        return
    place = tuple(int(i) for i in np.argwhere(~holds)[0])
    value = found[place] if found.shape == holds.shape else found
    row = place[0] if len(place) == 1 else place
    raise SpecError(
        explain(
            expected=expected,
            found=f"{value} in row {row}",
            where=f"check: column '{column}'",
            fix="correct what made this record",
        )
    )


def blind_rows(record: Any) -> None:
    """Refuse blind rows that end nothing."""
    if record.blind is not None:
        over = arrays.to_numpy(record.terminated | record.truncated)
        blind = arrays.to_numpy(record.blind)
        require(over | ~blind, "blind", "a row that terminated or was truncated", blind)


def same_columns(parts: Sequence[dict[str, Tree]], where: str) -> None:
    """Refuse parts whose columns cannot be joined: another structure, row shape or dtype than the first part's."""

    def compare(first: Array, other: Array) -> None:
        if tuple(first.shape[1:]) != tuple(other.shape[1:]) or first.dtype != other.dtype:
            expected, found = ((tuple(leaf.shape[1:]), _dtype(leaf)) for leaf in (first, other))
            msg = f"expected rows of {expected} as in the first part, found {found}"
            raise SpecError(msg)

    for number, part in enumerate(parts[1:], start=1):
        for name, columns in parts[0].items():
            try:
                tree.map(compare, columns, part[name])
            except SpecError as error:
                msg = f"{where}: part {number}, column '{name}': {error}"
                raise SpecError(msg) from None
