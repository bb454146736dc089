"""From batches of observations, as foreign vector environments return them, to rows of arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space, spaces

from outrider.errors import SpecError, explain
from outrider.spaces import observation_writer
from outrider.tree import Tree

__all__ = ["BatchWriter", "batch_writer", "one_each"]

BatchWriter: TypeAlias = Callable[[Any, int, Any, Any], None]
"""`write(batch, count, chosen, rows)`: check a batch of `count` observations and copy the `chosen` ones to `rows`.

`chosen` is an int64 array of indices into the batch, or None for all of it; `rows` a slice or an int64 array.
"""


def batch_writer(space: Space[Any], arrays: Tree, path: str = "") -> BatchWriter:
    """Return a function that checks a batch of observations and copies some of it into rows of `arrays`.

    Leaves may be of any kind that `numpy.asarray` takes. A narrower dtype than the space declares is taken (JAX returns
    int32 for Discrete), one that might lose something is not. Leaves without a fixed size come as one value for each
    observation, as Gymnasium batches them.

    Args:
        space: of one observation.
        arrays: tree of arrays [rows, ...]; leaves of the space that it lacks are not looked at.
        path: what errors call it.

    Raises (when called):
        SpecError: structure, shape or dtype differ from the space; the message names the path.

    Example:
        >>> rows = np.zeros((6, 2), np.float32)
        >>> write = batch_writer(spaces.Box(-1, 1, (2,)), rows)
        >>> write(np.ones((3, 2), np.float32), 3, np.array([0, 2]), np.array([1, 5]))
        >>> rows[:, 0].tolist()
        [0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    """
    if isinstance(space, spaces.Dict):
        parts = [(key, batch_writer(space[key], arrays[key], _join(path, key))) for key in arrays]
        return _dict_writer(parts, path)
    if isinstance(space, spaces.Tuple):
        return _tuple_writer([batch_writer(s, arrays[i], _join(path, i)) for i, s in enumerate(space.spaces)], path)
    if isinstance(arrays, np.ndarray):
        return _array_writer(arrays, path)
    return _ragged_writer(space, arrays, path)


def _join(path: str, key: object) -> str:
    return f"{path}/{key}" if path else str(key)


def _dict_writer(parts: list[tuple[Any, BatchWriter]], path: str) -> BatchWriter:
    keys = [key for key, _ in parts]

    def write(batch: Any, count: int, chosen: Any, rows: Any) -> None:
        if not isinstance(batch, Mapping) or any(key not in batch for key in keys):
            found = f"a dict with keys {sorted(batch, key=str)}" if isinstance(batch, Mapping) else type(batch).__name__
            raise _mismatch(path, f"a dict with keys {sorted(keys, key=str)}", found)
        for key, write_part in parts:
            write_part(batch[key], count, chosen, rows)

    return write


def _tuple_writer(writers: list[BatchWriter], path: str) -> BatchWriter:
    def write(batch: Any, count: int, chosen: Any, rows: Any) -> None:
        if not isinstance(batch, (tuple, list)) or len(batch) != len(writers):
            raise _mismatch(path, f"a tuple of {len(writers)}", type(batch).__name__)
        for write_part, part in zip(writers, batch, strict=True):
            write_part(part, count, chosen, rows)

    return write


def _array_writer(leaf: np.ndarray, path: str) -> BatchWriter:
    shape, dtype = leaf.shape[1:], leaf.dtype

    def write(batch: Any, count: int, chosen: Any, rows: Any) -> None:
        array = np.asarray(batch)
        if array.shape != (count, *shape) or not (array.dtype == dtype or _keeps(array, dtype)):
            found = f"shape {array.shape}, dtype {array.dtype}"
            raise _mismatch(path, f"shape {(count, *shape)}, dtype {dtype}", found)
        leaf[rows] = array if chosen is None else array[chosen]

    return write


def _ragged_writer(space: Space[Any], leaf: Any, path: str) -> BatchWriter:
    write_one = observation_writer(space, leaf, path)

    def write(batch: Any, count: int, chosen: Any, rows: Any) -> None:
        if len(batch) != count:
            raise _mismatch(path, f"{count} values, one for each environment", f"{len(batch)} of them")
        numbers = range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
        for index, row in zip(range(count) if chosen is None else chosen.tolist(), numbers, strict=True):
            write_one(batch[index], row)

    return write


def _keeps(array: np.ndarray, dtype: np.dtype[Any]) -> bool:
    """Whether every value of an array is the same in `dtype`."""
    if np.can_cast(array.dtype, dtype, "safe"):
        return True
    return array.dtype.kind in "iu" and dtype.kind in "iu" and bool((array == array.astype(dtype)).all())


def _mismatch(path: str, expected: str, found: str) -> SpecError:
    return SpecError(
        explain(
            expected=expected,
            found=found,
            where=f"batch of observations at '{path}'" if path else "batch of observations",
            fix="return what single_observation_space declares, or declare what is returned",
        )
    )


def one_each(values: Any, count: int, dtype: type[np.generic], what: str, shape: tuple[int, ...] = ()) -> np.ndarray:
    """Rewards or flags as an array [count], or rewards of a declared shape as an array [count, *shape].

    Raises:
        SpecError: there is not one number, or vector of this shape, for each.

    Example:
        >>> one_each([1, 2.5], 2, np.float64, "rewards")
        array([1. , 2.5])
    """
    array = np.asarray(values)
    if array.shape != (count, *shape) or array.dtype.kind not in "fiub":
        raise SpecError(
            explain(
                expected=f"shape {(count, *shape)} of numbers, as reward_space declares"
                if shape
                else f"{count} numbers, one for each environment",
                found=f"shape {array.shape}, dtype {array.dtype}",
                where=what,
                fix="return a batch with one for each; reward_space, a Box of shape (k,), declares vector rewards",
            )
        )
    return array.astype(dtype, copy=False)
