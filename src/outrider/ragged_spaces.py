"""Spaces whose members have no fixed size: Text, Sequence, Graph, and the strings of other packages' own spaces.

A member is checked for its structure, shapes and dtypes, as observations are everywhere, and copied; what comes of it
is described in `outrider.values`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space, spaces

from outrider.spec import RaggedSpec
from outrider.values import describe, fits_integer, mismatch

__all__ = ["FIXED", "AnyText", "Copier", "is_known", "is_ragged", "ragged_copier", "ragged_spec"]

FIXED = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
"""Spaces of one array of one shape."""

Copier: TypeAlias = Callable[[Any], Any]
"""`copy(value)`: check a member of a space and copy it."""

Stacker: TypeAlias = Callable[[Any], tuple[Any, int]]
"""`copy(value)`: the same for a stack of members; return how many there are as well."""


class AnyText(Space[str]):
    """Any string: what is left of other packages' own spaces of strings (MiniGrid's missions) in a description.

    Example:
        >>> "go to the red door" in AnyText(), 3 in AnyText(), AnyText() == AnyText()
        (True, False, True)
    """

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Strings have no size."""
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Some lower-case letters."""
        letters = self.np_random.integers(ord("a"), ord("z") + 1, size=self.np_random.integers(1, 20))
        return "".join(map(chr, letters))

    def contains(self, x: Any) -> bool:
        """Whether it is a string."""
        return isinstance(x, str)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyText)

    __hash__ = None  # type: ignore[assignment]  # as Gymnasium's spaces, whose generators change

    def __repr__(self) -> str:
        return "AnyText()"


def is_text(space: Space[Any]) -> bool:
    """Whether the members are strings: Text, or a space of another package that says so by its dtype."""
    if isinstance(space, spaces.Text):
        return True
    dtype = space.dtype
    return not isinstance(space, FIXED) and dtype is not None and np.dtype(dtype).kind == "U"


def is_ragged(space: Space[Any]) -> bool:
    """Whether it is a leaf without a fixed size that can be stored.

    Example:
        >>> is_ragged(spaces.Text(5)), is_ragged(spaces.Sequence(spaces.Discrete(2))), is_ragged(spaces.Discrete(2))
        (True, True, False)
    """
    if isinstance(space, spaces.Sequence):
        return is_known(space.feature_space)
    if isinstance(space, spaces.Graph):
        return is_known(space.node_space) and (space.edge_space is None or is_known(space.edge_space))
    return is_text(space)


def is_known(space: Space[Any]) -> bool:
    """Whether all leaves of a space can be stored."""
    if isinstance(space, spaces.Dict):
        return all(map(is_known, space.spaces.values()))
    if isinstance(space, spaces.Tuple):
        return all(map(is_known, space.spaces))
    return isinstance(space, FIXED) or is_ragged(space)


def ragged_spec(space: Space[Any]) -> RaggedSpec:
    """The spec of a leaf that `is_ragged`."""
    if isinstance(space, spaces.Sequence):
        return RaggedSpec("sequence", _no_rows(space.feature_space) if space.stack else ())
    if isinstance(space, spaces.Graph):
        return RaggedSpec("graph", spaces.GraphInstance(_no_rows(space.node_space), None, None))
    return RaggedSpec("text")


def _no_rows(space: Space[Any]) -> Any:
    """A stack of no member of a space."""
    if isinstance(space, spaces.Dict):
        return {key: _no_rows(sub) for key, sub in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_no_rows(sub) for sub in space.spaces)
    return _frozen(np.zeros((0, *(space.shape or ())), space.dtype)) if isinstance(space, FIXED) else ()


def ragged_copier(space: Space[Any], path: str) -> Copier:
    """Return a function that checks a member of a space that `is_ragged`, and copies it.

    Raises (when called):
        SpecError: structure, shape or dtype differ from the space; the message names the path. Elements are "*".
    """
    if isinstance(space, spaces.Sequence):
        return _stacked_sequence(space, path) if space.stack else _sequence(space, path)
    return _graph(space, path) if isinstance(space, spaces.Graph) else _text(path)


def _text(path: str) -> Copier:
    def copy(value: Any) -> str:
        if not isinstance(value, str):
            raise mismatch(path, "a str", describe(value))
        return str(value)

    return copy


def _sequence(space: spaces.Sequence, path: str) -> Copier:
    copy_element = _member(space.feature_space, f"{path}/*")

    def copy(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (tuple, list)):
            raise mismatch(path, "a tuple of elements", describe(value))
        return tuple([copy_element(element) for element in value])

    return copy


def _stacked_sequence(space: spaces.Sequence, path: str) -> Copier:
    copy_stack = _stack(space.feature_space, path)
    return lambda value: copy_stack(value)[0]


def _graph(space: spaces.Graph, path: str) -> Copier:
    copy_nodes = _stack(space.node_space, f"{path}/nodes")
    copy_edges = None if space.edge_space is None else _stack(space.edge_space, f"{path}/edges")

    def copy(value: Any) -> spaces.GraphInstance:
        if not isinstance(value, spaces.GraphInstance):
            raise mismatch(path, "a GraphInstance", describe(value))
        nodes, _ = copy_nodes(value.nodes)
        if value.edges is None and value.edge_links is None:
            return spaces.GraphInstance(nodes, None, None)
        if copy_edges is None:
            raise mismatch(path, "a graph without edges", f"edges: {describe(value.edges)}")
        edges, count = copy_edges(value.edges)
        links = value.edge_links
        if not isinstance(links, np.ndarray) or links.shape != (count, 2) or links.dtype.kind not in "iu":
            raise mismatch(f"{path}/edge_links", f"shape {(count, 2)} of integers", describe(links))
        return spaces.GraphInstance(nodes, edges, _frozen(links))

    return copy


def _member(space: Space[Any], path: str) -> Copier:
    """The copier of an element."""
    if isinstance(space, spaces.Dict):
        parts = {key: _member(sub, f"{path}/{key}") for key, sub in space.spaces.items()}
        return lambda value: {key: parts[key](part) for key, part in _children(value, parts, path)}
    if isinstance(space, spaces.Tuple):
        items = {index: _member(sub, f"{path}/{index}") for index, sub in enumerate(space.spaces)}
        return lambda value: tuple([items[index](part) for index, part in _children(value, items, path, kind=tuple)])
    if isinstance(space, spaces.Discrete):
        return _integer(space, path)
    return _array(space, path) if isinstance(space, FIXED) else ragged_copier(space, path)


def _children(value: Any, parts: dict[Any, Any], path: str, kind: type = dict) -> list[tuple[Any, Any]]:
    """The children of a dict or tuple, in the order of `parts`."""
    if kind is tuple:
        if not isinstance(value, (tuple, list)) or len(value) != len(parts):
            raise mismatch(path, f"a tuple of {len(parts)}", describe(value))
        return list(enumerate(value))
    if not isinstance(value, Mapping) or value.keys() != parts.keys():
        found = f"a dict with keys {sorted(value, key=str)}" if isinstance(value, Mapping) else describe(value)
        raise mismatch(path, f"a dict with keys {sorted(parts, key=str)}", found)
    return [(key, value[key]) for key in parts]


def _integer(space: spaces.Discrete[Any], path: str) -> Copier:
    dtype = np.dtype(space.dtype)

    def copy(value: Any) -> np.generic:
        if not fits_integer(value, dtype):
            raise mismatch(path, f"an integer, dtype {dtype}", describe(value))
        number: np.generic = dtype.type(value)
        return number

    return copy


def _array(space: Space[Any], path: str) -> Copier:
    shape, dtype = tuple(space.shape or ()), np.dtype(space.dtype)

    def copy(value: Any) -> Any:
        if not isinstance(value, (np.ndarray, np.generic)) or value.dtype != dtype or value.shape != shape:
            raise mismatch(path, f"shape {shape}, dtype {dtype}", describe(value))
        return _frozen(value)

    return copy


def _frozen(value: Any) -> Any:
    """A read-only copy of an array; NumPy's scalars are that already."""
    if isinstance(value, np.generic):
        return value
    copied = np.array(value, order="C")
    copied.setflags(write=False)
    return copied


def _stack(space: Space[Any], path: str) -> Stacker:
    """The copier of a stack of members."""
    if isinstance(space, spaces.Dict):
        parts = {key: _stack(sub, f"{path}/{key}") for key, sub in space.spaces.items()}
        return _stack_of_parts(parts, path, dict)
    if isinstance(space, spaces.Tuple):
        return _stack_of_parts({i: _stack(sub, f"{path}/{i}") for i, sub in enumerate(space.spaces)}, path, tuple)
    if isinstance(space, FIXED):
        return _stack_of_arrays(space, path)
    copy_element = ragged_copier(space, f"{path}/*")

    def copy(value: Any) -> tuple[Any, int]:
        if not isinstance(value, (tuple, list)):
            raise mismatch(path, "a tuple of elements", describe(value))
        return tuple([copy_element(element) for element in value]), len(value)

    return copy


def _stack_of_parts(parts: dict[Any, Stacker], path: str, kind: type) -> Stacker:
    def copy(value: Any) -> tuple[Any, int]:
        copies, counts = {}, []
        for key, part in _children(value, parts, path, kind):
            copies[key], count = parts[key](part)
            counts.append(count)
        if len(set(counts)) > 1:
            raise mismatch(path, "parts of equal length", f"lengths {counts}")
        return (copies if kind is dict else tuple(copies.values())), counts[0] if counts else 0

    return copy


def _stack_of_arrays(space: Space[Any], path: str) -> Stacker:
    shape, dtype = tuple(space.shape or ()), np.dtype(space.dtype)

    def copy(value: Any) -> tuple[Any, int]:
        if not isinstance(value, np.ndarray) or value.dtype != dtype or value.ndim == 0 or value.shape[1:] != shape:
            wanted = ", ".join(["n", *map(str, shape)])
            raise mismatch(path, f"shape ({wanted}), dtype {dtype}", describe(value))
        return _frozen(value), len(value)

    return copy
