"""Adding columns to a record."""

from __future__ import annotations

from typing import Any

from outrider import tree
from outrider.errors import SpecError, explain
from outrider.records import arrays, describe
from outrider.tree import Tree

__all__ = ["added"]


def added(record: Any, new: dict[str, Tree], shape: tuple[int, ...]) -> dict[str, Tree]:
    """Return the extras of a record with `new` ones, each of the array kind of the record.

    Raises:
        SpecError: a column does not begin with the axes `shape`, or its name is that of a field or property.
    """
    converted = {}
    for name, column in new.items():
        if name in describe.columns_of(record) or hasattr(type(record), name):
            where, found = f"with_columns({name}=...)", f"'{name}', which {type(record).__name__} has itself"
            raise SpecError(explain(expected="a new name", found=found, where=where, fix="choose another name"))
        converted[name] = tree.map(lambda leaf: arrays.like(record.reward, leaf), column)
        for path, leaf in tree.items(converted[name], name):
            if tuple(leaf.shape[: len(shape)]) != shape:
                raise SpecError(
                    explain(
                        expected=f"leading axes {shape}",
                        found=f"shape {tuple(leaf.shape)}",
                        where=f"with_columns: column '{path}'",
                        fix="give one value for each row of the record",
                    )
                )
    extras: dict[str, Tree] = record.extras
    return extras | converted
