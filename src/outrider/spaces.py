"""From Gymnasium spaces to rows of arrays and back: leaf specs, writers of observations, readers of actions.

Box, Discrete, MultiDiscrete, MultiBinary and nested Dict and Tuple of them have rows of fixed size. Text, Sequence and
Graph have not: they are ragged leaves (`outrider.ragged_spaces`), which only observations may have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space, spaces

from outrider.errors import ConfigError, explain
from outrider.ragged_spaces import FIXED, Copier, is_known, is_ragged, ragged_copier, ragged_spec
from outrider.spec import LeafSpec
from outrider.tree import Tree
from outrider.values import describe, fits_integer, mismatch

__all__ = [
    "Reader",
    "Writer",
    "action_reader",
    "leaf_specs",
    "leaf_writer",
    "observation_specs",
    "observation_writer",
    "stored_part",
]

Writer: TypeAlias = Callable[[Any, int], None]
"""`write(value, row)`: check one value and copy it into row `row` of the arrays that the writer was made for."""

Reader: TypeAlias = Callable[[int], Any]
"""`read(row)`: the action in row `row`, as a member of its space; it may share memory with the arrays."""

ARRAYS = (np.ndarray, np.generic)


def stored_part(space: Space[Any], path: str = "") -> tuple[Space[Any] | None, list[str]]:
    """Split a space into the part that can be stored and the paths of the leaves that nobody knows how to store.

    Returns:
        The space without those leaves (None if nothing is left) and their paths, in order.

    Example:
        >>> either = spaces.OneOf([spaces.Discrete(3), spaces.Text(5)])
        >>> stored_part(spaces.Dict(image=spaces.Discrete(3), mission=spaces.Text(8), either=either))[1]
        ['either']
    """
    if is_known(space):
        return space, []
    if isinstance(space, spaces.Dict):
        parts = {key: stored_part(sub, _join(path, key)) for key, sub in space.spaces.items()}
        kept = {key: part for key, (part, _) in parts.items() if part is not None}
        lost = [name for _, names in parts.values() for name in names]
        return (spaces.Dict(kept) if kept else None), lost
    if isinstance(space, spaces.Tuple):
        pairs = [stored_part(sub, _join(path, i)) for i, sub in enumerate(space.spaces)]
        lost = [name for _, names in pairs for name in names]
        # Positions are names in a tuple: leaving one out would rename those behind it.
        return None, lost + [_join(path, i) for i, (part, _) in enumerate(pairs) if part is not None]
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
    return _specs(space, where, _fixed_spec)


def observation_specs(space: Space[Any], where: str = "observation space") -> Tree:
    """The same for an observation space, which may have ragged leaves: those are `RaggedSpec`.

    Raises:
        ConfigError: a leaf is of neither kind.

    Example:
        >>> observation_specs(spaces.Dict(mission=spaces.Text(8)))
        {'mission': RaggedSpec(shape=(), dtype=dtype('O'), kind='text')}
    """
    return _specs(space, where, lambda leaf, path: ragged_spec(leaf) if is_ragged(leaf) else _fixed_spec(leaf, path))


def _specs(space: Space[Any], where: str, spec_of: Callable[[Space[Any], str], LeafSpec]) -> Tree:
    if isinstance(space, spaces.Dict):
        return {key: _specs(sub, f"{where}/{key}", spec_of) for key, sub in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_specs(sub, f"{where}/{i}", spec_of) for i, sub in enumerate(space.spaces))
    return spec_of(space, where)


def _fixed_spec(space: Space[Any], where: str) -> LeafSpec:
    if isinstance(space, FIXED):
        return LeafSpec(tuple(space.shape or ()), np.dtype(space.dtype))
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

    `arrays` is a tree of arrays [rows, ...] of the structure of `space`, arrays of objects or `RaggedLeaf` where it is
    ragged. It may lack the leaves that `stored_part` leaves out: those are not looked at.

    Raises (when called):
        SpecError: structure, shape or dtype differ from the space; the message names the path.
    """
    if isinstance(space, spaces.Dict):
        parts = [(key, observation_writer(space[key], arrays[key], _join(path, key))) for key in arrays]
        return _dict_writer(parts, list(space.spaces), path)
    if isinstance(space, spaces.Tuple):
        writers = [observation_writer(s, arrays[i], _join(path, i)) for i, s in enumerate(space.spaces)]
        return _tuple_writer(writers, path)
    if is_ragged(space):
        return _ragged_writer(arrays, ragged_copier(space, path))
    return leaf_writer(arrays, path, integer=isinstance(space, spaces.Discrete))


def _ragged_writer(leaf: Any, copy: Copier) -> Writer:
    def write(value: Any, row: int) -> None:
        leaf[row] = copy(value)

    return write


def _dict_writer(parts: list[tuple[Any, Writer]], keys: list[Any], path: str) -> Writer:
    def write(value: Any, row: int) -> None:
        if (
            not isinstance(value, (dict, Mapping))
            or len(value) != len(keys)
            or any(key not in value for key, _ in parts)
        ):
            found = f"a dict with keys {sorted(value, key=str)}" if isinstance(value, Mapping) else describe(value)
            raise mismatch(path, f"a dict with keys {sorted(keys, key=str)}", found)
        for key, write_part in parts:
            write_part(value[key], row)

    return write


def _tuple_writer(writers: list[Writer], path: str) -> Writer:
    def write(value: Any, row: int) -> None:
        if not isinstance(value, (tuple, list)) or len(value) != len(writers):
            raise mismatch(path, f"a tuple of {len(writers)}", describe(value))
        for write_part, part in zip(writers, value, strict=True):
            write_part(part, row)

    return write


def leaf_writer(array: np.ndarray, path: str, *, integer: bool) -> Writer:
    """Return the writer of one leaf: exact shape and dtype, because assignment alone would cast and broadcast."""
    shape, dtype = array.shape[1:], array.dtype

    def write(value: Any, row: int) -> None:
        fits = isinstance(value, ARRAYS) and value.dtype == dtype and value.shape == shape
        if not (fits or (integer and fits_integer(value, dtype))):
            raise mismatch(path, f"shape {shape}, dtype {dtype}", describe(value))
        array[row] = value

    return write


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
