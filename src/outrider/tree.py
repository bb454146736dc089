"""Trees: nested dicts and tuples whose leaves are arrays (or anything that is not a dict, a tuple or None).

Observations, actions, extras, states and infos are trees everywhere in Outrider; a plain array is the tree of one leaf,
None and the empty dict are trees without leaves. Structure is compared by key and position, never by the order of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from outrider.errors import SpecError

__all__ = ["Tree", "concatenate", "items", "leaves", "map", "paths", "put", "stack", "take", "unflatten", "zeros"]

Tree: TypeAlias = Any
"""A nested dict or tuple of leaves; `Any` because Python's types cannot say so without a cast at every use."""


def _children(tree: Tree) -> Iterable[tuple[Any, Tree]]:
    return tree.items() if isinstance(tree, dict) else enumerate(tree if tree is not None else ())


def _is_leaf(tree: Tree) -> bool:
    return not (tree is None or isinstance(tree, (dict, tuple)))


def _rebuild(like: Tree, children: list[Tree]) -> Tree:
    if isinstance(like, dict):
        return dict(zip(like, children, strict=True))
    if hasattr(like, "_fields"):
        return type(like)(*children)
    return tuple(children)


class _Differ(Exception):  # noqa: N818 - a signal between `_map` and `map`, which makes an error of it
    """Two trees differ; the keys of the path are collected on the way up, so that it costs nothing otherwise."""

    def __init__(self, expected: Tree, found: Tree) -> None:
        super().__init__()
        self.expected, self.found = expected, found
        self.keys: list[object] = []


def _same_node(tree: Tree, other: Tree) -> bool:
    """Whether two nodes are of the same kind, keys or length."""
    if isinstance(tree, dict):
        return isinstance(other, dict) and tree.keys() == other.keys()
    if isinstance(tree, tuple):
        return isinstance(other, tuple) and len(tree) == len(other)
    return other is None if tree is None else _is_leaf(other)


def _kind(tree: Tree) -> str:
    if isinstance(tree, dict):
        return f"a dict with keys {sorted(tree, key=str)}"
    if isinstance(tree, tuple):
        return f"a tuple of {len(tree)}"
    return "nothing" if tree is None else f"a leaf of type {type(tree).__name__}"


def map(fn: Callable[..., Any], tree: Tree, *rest: Tree, path: str = "") -> Tree:  # noqa: A001 - read as tree.map
    """Apply `fn` to each leaf of `tree` and the matching leaves of `rest`; return a tree of the results.

    Raises:
        SpecError: the trees differ in structure; the message names the path.

    Example:
        >>> map(lambda a, b: a + b, {"x": 1, "y": (2, 3)}, {"y": (20, 30), "x": 10})
        {'x': 11, 'y': (22, 33)}
    """
    if not rest:
        return _map_one(fn, tree)
    try:
        return _map(fn, tree, rest)
    except _Differ as difference:
        where = "/".join([*([path] if path else []), *(str(key) for key in reversed(difference.keys))])
        msg = (
            f"trees differ at '{where or '/'}': expected {_kind(difference.expected)}, found {_kind(difference.found)}"
        )
        raise SpecError(msg) from None


def _map_one(fn: Callable[[Any], Any], tree: Tree) -> Tree:
    """`map` over a single tree, which has nothing to differ from."""
    if isinstance(tree, dict):
        return {key: _map_one(fn, child) for key, child in tree.items()}
    if isinstance(tree, tuple):
        return _rebuild(tree, [_map_one(fn, child) for child in tree])
    return None if tree is None else fn(tree)


def _map(fn: Callable[..., Any], tree: Tree, rest: tuple[Tree, ...]) -> Tree:
    for other in rest:
        if not _same_node(tree, other):
            raise _Differ(tree, other)
    if _is_leaf(tree):
        return fn(tree, *rest)
    if tree is None:
        return None
    results = []
    key: object = None
    try:
        for key, child in _children(tree):
            results.append(_map(fn, child, tuple([other[key] for other in rest])))
    except _Differ as difference:
        difference.keys.append(key)
        raise
    return _rebuild(tree, results)


def _join(path: str, key: object) -> str:
    return f"{path}/{key}" if path else str(key)


def items(tree: Tree, prefix: str = "") -> list[tuple[str, Any]]:
    """Return (path, leaf) of each leaf in order; the path of a lone leaf is `prefix`.

    Example:
        >>> items({"a": 1, "b": (2, 3)}, "obs")
        [('obs/a', 1), ('obs/b/0', 2), ('obs/b/1', 3)]
    """
    if _is_leaf(tree):
        return [(prefix, tree)]
    return [pair for key, child in _children(tree) for pair in items(child, _join(prefix, key))]


def leaves(tree: Tree) -> list[Any]:
    """Return the leaves in order.

    Example:
        >>> leaves({"a": 1, "b": (2, 3)})
        [1, 2, 3]
    """
    return [leaf for _, leaf in items(tree)]


def paths(tree: Tree, prefix: str = "") -> list[str]:
    """Return the path of each leaf in order, its keys joined by '/'."""
    return [path for path, _ in items(tree, prefix)]


def unflatten(like: Tree, values: Sequence[Any]) -> Tree:
    """Return a tree of the structure of `like` with `values` as its leaves, in the order of `leaves`.

    Example:
        >>> unflatten({"a": 0, "b": (0, 0)}, [7, 8, 9])
        {'a': 7, 'b': (8, 9)}
    """
    source = iter(values)
    result = map(lambda _: next(source), like)
    left = sum(1 for _ in source)
    if left:
        msg = f"a tree of {len(values) - left} leaves cannot take {len(values)} values"
        raise SpecError(msg)
    return result


def stack(trees: Sequence[Tree], axis: int = 0) -> Tree:
    """Stack the leaves of trees of equal structure along a new axis."""
    return map(lambda *leaf: np.stack(leaf, axis), trees[0], *trees[1:])


def concatenate(trees: Sequence[Tree], axis: int = 0) -> Tree:
    """Join the leaves of trees of equal structure along an existing axis."""
    return map(lambda *leaf: np.concatenate(leaf, axis), trees[0], *trees[1:])


def take(tree: Tree, index: Any) -> Tree:
    """Return `leaf[index]` of each leaf: a view for slices, a copy for index arrays.

    Example:
        >>> take({"a": np.arange(4)}, slice(1, 3))
        {'a': array([1, 2])}
    """
    return map(lambda leaf: leaf[index], tree)


def put(tree: Tree, index: Any, values: Tree) -> None:
    """Write `values` at `index` of each leaf."""

    def write(leaf: Any, value: Any) -> None:
        leaf[index] = value

    map(write, tree, values)


def zeros(specs: Tree, *leading: int) -> Tree:
    """Return zeroed arrays for a tree of `LeafSpec`, with `leading` axes before each leaf's own shape."""
    return map(lambda spec: spec.zeros(*leading), specs)
