"""The leaves of trees that come in, checked: quickly where they are right, as they nearly always are."""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider import tree
from outrider.spec import LeafSpec, RaggedSpec, check_batch
from outrider.tree import Tree

__all__ = ["Leaves"]


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
        self._is_ragged = any(isinstance(spec, RaggedSpec) for spec in tree.leaves(specs))

    def of(self, batch: Tree, leading: tuple[int, ...], where: str) -> list[Any]:
        """The leaves of a batch with these leading axes, in the order of `specs`.

        Raises:
            SpecError: it is not of that structure, or a leaf not of its shape and dtype; see `check_batch`.
        """
        found: list[Any] = []
        if self._is_ragged or not _collect(self._specs, batch, leading, found):
            check_batch(self._specs, batch, leading, where)
            return tree.leaves(tree.map(lambda _, leaf: leaf, self._specs, batch))
        return found


def _collect(specs: Tree, batch: Tree, leading: tuple[int, ...], found: list[Any]) -> bool:
    """Append the leaves of a batch; return False where it is not plainly of this structure or a leaf not right."""
    if isinstance(specs, LeafSpec):
        found.append(batch)
        return isinstance(batch, np.ndarray) and batch.shape == leading + specs.shape and batch.dtype == specs.dtype
    if specs is None:
        return batch is None
    if type(batch) is not type(specs) or len(batch) != len(specs):
        return False
    is_dict = isinstance(specs, dict)
    for key, child in specs.items() if is_dict else enumerate(specs):
        if (is_dict and key not in batch) or not _collect(child, batch[key], leading, found):
            return False
    return True
