"""The leaves of trees that come in, checked: quickly where they are right, as they nearly always are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider import tree
from outrider.errors import SpecError, explain
from outrider.spec import LeafSpec, RaggedSpec, check_batch
from outrider.tree import Tree
from outrider.values import objects

__all__ = ["Leaves", "as_array", "fitted"]


@dataclass(frozen=True)
class _Node:
    """A dict, tuple or nothing of a tree of specs, for a batch of some size.

    Attributes:
        kind: its type.
        entries: (key, shape and dtype of a leaf, node if it is none) of each child.
    """

    kind: Any
    entries: tuple[tuple[Any, tuple[int, ...], np.dtype[Any] | None, _Node | None], ...]


class Leaves:
    """Finds the leaves of trees of one structure without comparing trees leaf by leaf.

    Args:
        specs: tree of `LeafSpec` without leading axes.

    Example:
        >>> leaves = Leaves({"a": LeafSpec((), np.dtype("i8")), "b": (LeafSpec((2,), np.dtype("f4")),)})
        >>> [leaf.shape for leaf in leaves.of({"b": (np.zeros((3, 2), "f4"),), "a": np.zeros(3, int)}, (3,), "here")]
        [(3,), (3, 2)]
    """

    def __init__(self, specs: Tree) -> None:
        self._specs = specs
        # What the leading axes were the last time, and the node of such a batch, which is the only leaf of a tuple.
        self._last: tuple[tuple[int, ...], _Node] = (), _node((specs,), ())
        # The values of a ragged leaf have to be looked at one by one.
        self._is_ragged = any(isinstance(spec, RaggedSpec) for spec in tree.leaves(specs))

    def found(self, batch: Tree, leading: tuple[int, ...]) -> list[Any] | None:
        """As `of`, but None where the batch is not plainly right, which `of` may find nothing wrong with."""
        if self._is_ragged:
            return None
        if self._last[0] != leading:
            self._last = leading, _node((self._specs,), leading)
        found: list[Any] = []
        return found if _collect(self._last[1], (batch,), found) else None

    def of(self, batch: Tree, leading: tuple[int, ...], where: str) -> list[Any]:
        """The leaves of a batch with these leading axes, in the order of `specs`.

        Raises:
            SpecError: it is not of that structure, or a leaf not of its shape and dtype; see `check_batch`.
        """
        found = self.found(batch, leading)
        if found is None:
            check_batch(self._specs, batch, leading, where)
            found = tree.leaves(tree.map(lambda _, leaf: leaf, self._specs, batch))
        return found

    def fitted(self, batch: Tree, where: str) -> Tree:
        """The batch with arrays for all that is none; see `as_array`.

        Raises:
            SpecError: it is not of the structure of `specs`, or something cannot become an array.
        """
        try:
            leaves = tree.leaves(tree.map(lambda _, leaf: leaf, self._specs, batch))
        except SpecError as error:
            msg = f"{where}: {error}. To fix it: pass what the spec declares, by its keys."
            raise SpecError(msg) from None
        pairs = zip(tree.items(self._specs), leaves, strict=True)
        made = [as_array(leaf, spec, f"{where} at '{path}'" if path else where) for (path, spec), leaf in pairs]
        return tree.unflatten(self._specs, made)


def _node(specs: Tree, leading: tuple[int, ...]) -> _Node:
    pairs = specs.items() if isinstance(specs, dict) else enumerate(() if specs is None else specs)
    return _Node(type(specs), tuple((key, *_entry(spec, leading)) for key, spec in pairs))


def _entry(spec: Tree, leading: tuple[int, ...]) -> tuple[tuple[int, ...], np.dtype[Any] | None, _Node | None]:
    is_leaf = isinstance(spec, LeafSpec)
    return (leading + spec.shape, spec.dtype, None) if is_leaf else ((), None, _node(spec, leading))


def _collect(node: _Node, batch: Tree, found: list[Any]) -> bool:
    """Append the leaves of a batch; return False where it is not plainly of this structure or a leaf not right."""
    if type(batch) is not node.kind or len(batch or ()) != len(node.entries):
        return False
    try:
        for key, shape, dtype, below in node.entries:
            child = batch[key]
            if below is None:
                if type(child) is not np.ndarray or child.dtype != dtype or child.shape != shape:
                    return False
                found.append(child)
            elif (child or below.entries or type(child) is not below.kind) and not _collect(below, child, found):
                return False
    except KeyError:
        return False
    return True


def as_array(value: Any, spec: LeafSpec, where: str) -> Any:
    """An array of what is none, by `numpy.asarray`, in the dtype of `spec` if its values fit; see `fitted`.

    What does not fit is returned as it is, for a check of shapes and dtypes to name.

    Raises:
        SpecError: nothing can be made of it.
    """
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):
        # A tensor; NumPy takes none that has a gradient or is on another device.
        value = value.detach().cpu()
    if isinstance(spec, RaggedSpec):
        return objects(value, (len(value),)) if isinstance(value, list) else np.asarray(value, object)
    try:
        return fitted(np.asarray(value), spec.dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise SpecError(
            explain(
                expected=f"an array of rows of shape {spec.shape}, dtype {spec.dtype}",
                found=f"{type(value).__name__}: {error}",
                where=where,
                fix="pass one value for each lane",
            )
        ) from error


def fitted(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """The array in another dtype if its values fit: integers and flags stay the same numbers, floats are rounded.

    Example:
        >>> [fitted(np.array(values), np.dtype("u1")).dtype.name for values in ([1, 255], [1, 256], [1.0, 2.0])]
        ['uint8', 'int64', 'float64']
    """
    if array.dtype == dtype or array.dtype.kind not in "biuf":
        return array
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
    if dtype.kind == "f":
        return cast if np.array_equal(np.isfinite(array), np.isfinite(cast)) else array
    return cast if dtype.kind in "iu" and array.dtype.kind != "f" and np.array_equal(array, cast) else array
