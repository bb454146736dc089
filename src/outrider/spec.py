"""The shape and dtype of one leaf of one row, without leading axes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from outrider import tree
from outrider.errors import SpecError, explain
from outrider.tree import Tree
from outrider.values import EMPTY, empty_like, kind_of, objects

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = ["LeafSpec", "RaggedSpec", "check_batch", "row_nbytes", "specs_of"]


@dataclass(frozen=True)
class LeafSpec:
    """Shape and dtype of a leaf of one row: `LeafSpec((84, 84), np.uint8)` is a frame, `LeafSpec((), "f8")` a reward.

    Attributes:
        shape: of a row, without the axes of time and lane; () for one number.
        dtype: whatever `np.dtype` takes may be given.

    Raises:
        SpecError: one of them is none.

    Example:
        >>> LeafSpec.of(np.zeros((8, 3), np.float32))
        LeafSpec(shape=(3,), dtype=dtype('float32'))
        >>> LeafSpec((3,), "float32") == LeafSpec((3,), np.float32)
        True
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __init__(self, shape: Sequence[int], dtype: DTypeLike) -> None:
        object.__setattr__(self, "shape", _shape(shape))
        object.__setattr__(self, "dtype", _dtype(dtype))

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


def _shape(shape: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(index(size) for size in shape)
        is_shape = not isinstance(shape, str) and all(size >= 0 for size in sizes)
    except TypeError:
        is_shape = False
    if not is_shape:
        fix = "pass (3,) for vectors of three numbers, () for one number"
        raise SpecError(
            explain(expected="a tuple of sizes", found=repr(shape), where="LeafSpec(shape, dtype)", fix=fix)
        )
    return sizes


def _dtype(dtype: Any) -> np.dtype[Any]:
    # NumPy takes None for float64.
    with suppress(TypeError, ValueError):
        if dtype is not None:
            found: np.dtype[Any] = np.dtype(dtype)
            return found
    fix = "pass for example np.float32 or 'float32'"
    raise SpecError(explain(expected="a dtype", found=repr(dtype), where="LeafSpec(shape, dtype)", fix=fix))


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
        place = where if path == "" else f"{where} at '{path}'"
        shape = (*leading, *spec.shape)
        if not isinstance(array, np.ndarray):
            found = f"a {type(array).__name__}"
            fix = "pass arrays; np.asarray(x, dtype) makes one of a list, x.numpy() of a tensor"
        elif array.shape != shape or array.dtype != spec.dtype:
            found, fix = f"shape {array.shape}, dtype {array.dtype}", _way_to(spec, leading, array)
        else:
            if isinstance(spec, RaggedSpec):
                _check_kind(spec, array, place)
            continue
        raise SpecError(explain(expected=f"shape {shape}, dtype {spec.dtype}", found=found, where=place, fix=fix))


def _way_to(spec: LeafSpec, leading: tuple[int, ...], array: np.ndarray) -> str:
    """What to do about an array that is not of `spec` with these leading axes."""
    if array.shape == (*leading, *spec.shape):
        return f"cast it with x.astype(np.{spec.dtype.name}), or declare dtype {array.dtype} in the spec"
    if array.shape == spec.shape:
        return "add the axis of the rows in front, e.g. with x[None]"
    return "pass rows of the shape that the spec declares; StepSpec.of(record) is the spec of what there is"


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
