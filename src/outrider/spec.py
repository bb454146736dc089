"""The shape and dtype of one leaf of one row, without leading axes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from outrider import tree
from outrider.errors import SpecError, explain
from outrider.tree import Tree
from outrider.values import EMPTY, empty_like, kind_of, objects

__all__ = ["LeafSpec", "RaggedSpec", "check_batch", "row_nbytes", "specs_of"]


@dataclass(frozen=True)
class LeafSpec:
    """Shape and dtype of a leaf of one row: `LeafSpec((84, 84), uint8)` is a frame, `LeafSpec((), float64)` a reward.

    Example:
        >>> LeafSpec.of(np.zeros((8, 3), np.float32))
        LeafSpec(shape=(3,), dtype=dtype('float32'))
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, array: Any, batch_axes: int = 1) -> LeafSpec:
        """The spec of an example array whose first `batch_axes` axes are not part of a row."""
        return cls(tuple(array.shape[batch_axes:]), np.dtype(array.dtype))

    @property
    def nbytes(self) -> int:
        """Bytes of one row."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def zeros(self, *leading: int) -> np.ndarray:
        """A zeroed array [*leading, ...]."""
        return np.zeros((*leading, *self.shape), self.dtype)


@dataclass(frozen=True)
class RaggedSpec(LeafSpec):
    """A leaf whose rows have no fixed size: an array of objects, one value a row (see `outrider.values`).

    Attributes:
        kind: "text", "sequence" or "graph".
        empty: the empty value, which stands where no other does; by default that of the kind.

    Example:
        >>> RaggedSpec("text").zeros(2)
        array(['', ''], dtype=object)
    """

    shape: tuple[int, ...] = field(default=(), init=False)
    dtype: np.dtype[Any] = field(default=np.dtype(np.object_), init=False)
    kind: str = "sequence"
    empty: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Know an empty value."""
        if self.empty is None:
            object.__setattr__(self, "empty", EMPTY[self.kind])

    @property
    def nbytes(self) -> int:
        """Bytes of one row in the arrays of all rows, where it has none: its values are kept elsewhere."""
        return 0

    def zeros(self, *leading: int) -> np.ndarray:
        """An array of objects [*leading] of empty values."""
        return objects([self.empty] * int(np.prod(leading)), leading)


def specs_of(batch: Tree, batch_axes: int = 1) -> Tree:
    """The tree of `LeafSpec` of a tree of arrays with `batch_axes` leading axes.

    An array of objects without axes of its own is a ragged leaf of the kind of its first value.
    """
    return tree.map(lambda array: _spec_of(array, batch_axes), batch)


def _spec_of(array: Any, batch_axes: int) -> LeafSpec:
    if array.dtype == np.object_ and array.ndim == batch_axes and array.size:
        first = array.flat[0]
        kind = kind_of(first)
        if kind is not None:
            return RaggedSpec(kind, empty_like(first))
    return LeafSpec.of(array, batch_axes)


def row_nbytes(specs: Tree) -> int:
    """Bytes of one row of a tree of `LeafSpec`, without what ragged leaves hold."""
    return sum(spec.nbytes for spec in tree.leaves(specs))


def check_batch(specs: Tree, batch: Tree, leading: tuple[int, ...], where: str) -> None:
    """Refuse a tree of arrays that is not of `specs` with `leading` axes before each leaf.

    Raises:
        SpecError: names the leaf by its path below `where`.
    """
    for (path, spec), array in zip(tree.items(specs), _matching(specs, batch, where), strict=True):
        shape = (*leading, *spec.shape)
        if tuple(array.shape) != shape or array.dtype != spec.dtype:
            msg = explain(
                expected=f"shape {shape}, dtype {spec.dtype}",
                found=f"shape {tuple(array.shape)}, dtype {array.dtype}",
                where=where if path == "" else f"{where} at '{path}'",
                fix="return the same structure, shape and dtype for every row",
            )
            raise SpecError(msg)
        if isinstance(spec, RaggedSpec):
            _check_kind(spec, array, where if path == "" else f"{where} at '{path}'")


def _check_kind(spec: RaggedSpec, array: np.ndarray, where: str) -> None:
    for value in array.flat:
        if kind_of(value) != spec.kind:
            msg = explain(
                expected=f"values of kind '{spec.kind}' in each row",
                found=f"{type(value).__name__} {value!r:.60}",
                where=where,
                fix="return the same kind of value for every row",
            )
            raise SpecError(msg)


def _matching(specs: Tree, batch: Tree, where: str) -> list[Any]:
    """The leaves of `batch` in the order of `specs`, or an error that names where the structure differs."""
    try:
        return tree.leaves(tree.map(lambda _, array: array, specs, batch))
    except SpecError as error:
        msg = f"{where}: {error}"
        raise SpecError(msg) from None
