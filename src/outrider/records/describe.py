"""What every record can say about itself: its size in memory, and a repr of shapes instead of data."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from outrider import tree, values
from outrider.tree import Tree

__all__ = ["columns_of", "figures", "nbytes", "shapes"]


def columns_of(record: Any) -> dict[str, Any]:
    """The fields of a record by name, without those that it derives itself."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record) if field.init}


def nbytes(record: Any) -> int:
    """Bytes of all leaves of a record; a leaf that is a view counts the rows it shows, a ragged one its values too."""
    leaves = [leaf for leaf in tree.leaves(columns_of(record)) if hasattr(leaf, "nbytes")]
    ragged = [leaf for leaf in leaves if isinstance(leaf, np.ndarray) and leaf.dtype.hasobject]
    return sum(int(leaf.nbytes) for leaf in leaves) + sum(
        values.nbytes(value) for leaf in ragged for value in leaf.flat
    )


def _leaf(value: Any) -> str:
    if not hasattr(value, "shape"):
        return repr(value)
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{dtype}[{', '.join(str(size) for size in value.shape)}]"


def _tree(value: Tree) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_tree(child)}" for key, child in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(_tree(child) for child in value) + ")"
    return "None" if value is None else _leaf(value)


def figures(values: Any, form: str = ".6g") -> str:
    """A number as text, or the numbers of a vector, one for each objective.

    Example:
        >>> figures(2.5), figures(np.array([1.0, 3.5]))
        ('2.5', '1, 3.5')
    """
    return ", ".join(format(value, form) for value in np.asarray(values).reshape(-1).tolist())


def shapes(record: Any) -> str:
    """The repr of a record: dtype and shape of every leaf.

    Columns that are absent (None or empty) are left out.
    """
    shown = {name: value for name, value in columns_of(record).items() if tree.leaves(value)}
    inside = ", ".join(f"{name}={_tree(value)}" for name, value in shown.items())
    return f"{type(record).__name__}({inside})"
