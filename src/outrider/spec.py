"""The shape and dtype of one leaf of one row, without leading axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider import tree
from outrider.errors import SpecError, explain
from outrider.tree import Tree

__all__ = ["LeafSpec", "check_batch", "row_nbytes", "specs_of"]


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


def specs_of(batch: Tree, batch_axes: int = 1) -> Tree:
    """The tree of `LeafSpec` of a tree of arrays with `batch_axes` leading axes."""
    return tree.map(lambda array: LeafSpec.of(array, batch_axes), batch)


def row_nbytes(specs: Tree) -> int:
    """Bytes of one row of a tree of `LeafSpec`."""
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


def _matching(specs: Tree, batch: Tree, where: str) -> list[Any]:
    """The leaves of `batch` in the order of `specs`, or an error that names where the structure differs."""
    try:
        return tree.leaves(tree.map(lambda _, array: array, specs, batch))
    except SpecError as error:
        msg = f"{where}: {error}"
        raise SpecError(msg) from None
