"""From Gymnasium spaces to rows of arrays and back: leaf specs, writers of observations, readers of actions.

Box, Discrete, MultiDiscrete, MultiBinary and nested Dict and Tuple of them have rows of fixed size. Other spaces (Text,
Sequence, Graph, MiniGrid's mission strings) have not: `fixed_part` says which leaves those are and leaves them out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space, spaces

from outrider.errors import ConfigError, SpecError, explain
from outrider.spec import LeafSpec
from outrider.tree import Tree

__all__ = ["Reader", "Writer", "action_reader", "fixed_part", "leaf_specs", "leaf_writer", "observation_writer"]

Writer: TypeAlias = Callable[[Any, int], None]
"""`write(value, row)`: check one value and copy it into row `row` of the arrays that the writer was made for."""

Reader: TypeAlias = Callable[[int], Any]
"""`read(row)`: the action in row `row`, as a member of its space; it may share memory with the arrays."""

ARRAYS = (np.ndarray, np.generic)

FIXED = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def fixed_part(space: Space[Any], path: str = "") -> tuple[Space[Any] | None, list[str]]:
    """Split a space into the part whose rows have a fixed size and the paths of the leaves that have not.

    Returns:
        The space without those leaves (None if nothing is left) and their paths, in order.

    Example:
        >>> fixed_part(spaces.Dict(image=spaces.Discrete(3), mission=spaces.Text(8)))
        (Dict('image': Discrete(3)), ['mission'])
    """
    if isinstance(space, FIXED):
        return space, []
    if isinstance(space, spaces.Dict):
        parts = {key: fixed_part(sub, _join(path, key)) for key, sub in space.spaces.items()}
        kept = {key: part for key, (part, _) in parts.items() if part is not None}
        lost = [name for _, names in parts.values() for name in names]
        if not lost:
            return space, []
        return (spaces.Dict(kept) if kept else None), lost
    if isinstance(space, spaces.Tuple):
        pairs = [fixed_part(sub, _join(path, i)) for i, sub in enumerate(space.spaces)]
        lost = [name for _, names in pairs for name in names]
        if lost:
            # Positions are names in a tuple: leaving one out would rename those behind it.
            return None, lost + [_join(path, i) for i, (part, _) in enumerate(pairs) if part is not None]
        return space, []
    return None, [path]


def _join(path: str, key: object) -> str:
    return f"{path}/{key}" if path else str(key)


def leaf_specs(space: Space[Any], where: str = "space") -> Tree:
    """Return the tree of `LeafSpec` of one row of `space`.

    Raises:
        ConfigError: a leaf has no fixed size.

    Example:
        >>> leaf_specs(spaces.Discrete(3, start=-1))
        LeafSpec(shape=(), dtype=dtype('int64'))
    """
    if isinstance(space, FIXED):
        return LeafSpec(tuple(space.shape or ()), np.dtype(space.dtype))
    if isinstance(space, spaces.Dict):
        return {key: leaf_specs(sub, f"{where}/{key}") for key, sub in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(leaf_specs(sub, f"{where}/{i}") for i, sub in enumerate(space.spaces))
    raise ConfigError(
        explain(
            expected="Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of them",
            found=repr(space),
            where=where,
            fix="wrap the environment so that this leaf becomes an array of fixed shape",
        )
    )


def observation_writer(space: Space[Any], arrays: Tree, path: str = "") -> Writer:
    """Return a function that checks an observation and copies it into a row of `arrays`.

    `arrays` is a tree of arrays [rows, ...] of the structure of `space`, which may lack the leaves that `fixed_part`
    leaves out: those are not looked at.

    Raises (when called):
        SpecError: structure, shape or dtype differ from the space; the message names the path.
    """
    if isinstance(space, spaces.Dict):
        parts = [(key, observation_writer(space[key], arrays[key], _join(path, key))) for key in arrays]
        return _dict_writer(parts, list(space.spaces), path)
    if isinstance(space, spaces.Tuple):
        writers = [observation_writer(s, arrays[i], _join(path, i)) for i, s in enumerate(space.spaces)]
        return _tuple_writer(writers, path)
    return leaf_writer(arrays, path, integer=isinstance(space, spaces.Discrete))


def _dict_writer(parts: list[tuple[Any, Writer]], keys: list[Any], path: str) -> Writer:
    def write(value: Any, row: int) -> None:
        if (
            not isinstance(value, (dict, Mapping))
            or len(value) != len(keys)
            or any(key not in value for key, _ in parts)
        ):
            found = f"a dict with keys {sorted(value, key=str)}" if isinstance(value, Mapping) else _describe(value)
            raise _mismatch(path, f"a dict with keys {sorted(keys, key=str)}", found)
        for key, write_part in parts:
            write_part(value[key], row)

    return write


def _tuple_writer(writers: list[Writer], path: str) -> Writer:
    def write(value: Any, row: int) -> None:
        if not isinstance(value, (tuple, list)) or len(value) != len(writers):
            raise _mismatch(path, f"a tuple of {len(writers)}", _describe(value))
        for write_part, part in zip(writers, value, strict=True):
            write_part(part, row)

    return write


def leaf_writer(array: np.ndarray, path: str, *, integer: bool) -> Writer:
    """Return the writer of one leaf: exact shape and dtype, because assignment alone would cast and broadcast."""
    shape, dtype = array.shape[1:], array.dtype

    def write(value: Any, row: int) -> None:
        fits = isinstance(value, ARRAYS) and value.dtype == dtype and value.shape == shape
        if not (fits or (integer and _fits(value, dtype))):
            raise _mismatch(path, f"shape {shape}, dtype {dtype}", _describe(value))
        array[row] = value

    return write


def _fits(value: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a Python or NumPy integer is held by `dtype` exactly."""
    if isinstance(value, np.ndarray):
        if value.shape != () or value.dtype.kind not in "iu":
            return False
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        return False
    info = np.iinfo(dtype)
    return bool(info.min <= value <= info.max)


def _describe(value: Any) -> str:
    if isinstance(value, (np.ndarray, np.generic)):
        return f"shape {value.shape}, dtype {value.dtype}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"{type(value).__name__} {value!r:.60}"


def _mismatch(path: str, expected: str, found: str) -> SpecError:
    return SpecError(
        explain(
            expected=expected,
            found=found,
            where=f"observation at '{path}'" if path else "observation",
            fix="return what observation_space declares, or declare what is returned",
        )
    )


def action_reader(space: Space[Any], arrays: Tree) -> Reader:
    """Return a function that builds the action in a row of `arrays`, a tree of arrays [rows, ...].

    Discrete actions come as NumPy integers, arrays as views of the row: whoever passes them on copies the rows first.
    """
    if isinstance(space, spaces.Dict):
        parts = [(key, action_reader(sub, arrays[key])) for key, sub in space.spaces.items()]
        return lambda row: {key: read(row) for key, read in parts}
    if isinstance(space, spaces.Tuple):
        readers = [action_reader(sub, arrays[i]) for i, sub in enumerate(space.spaces)]
        return lambda row: tuple(read(row) for read in readers)
    if isinstance(space, spaces.Box) and space.shape == ():
        return lambda row: arrays[row : row + 1].reshape(())
    reader: Reader = arrays.__getitem__
    return reader
