"""Ragged leaves: what an array by row number is for other leaves, a table of values is for them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from outrider.spec import RaggedSpec
from outrider.values import objects

__all__ = ["RaggedLeaf"]


class RaggedLeaf:
    """Values by row number. Reads and writes like an array of objects [rows], but only rows that were written cost.

    `leaf[row]` is a value, that of a row that was never written the empty one; `leaf[slice or int64 array]` is a new
    array of objects. Values are never changed, so that they may be shared.

    Example:
        >>> leaf = RaggedLeaf(RaggedSpec("text"), 1 << 40)
        >>> leaf[7] = "seven"
        >>> leaf[np.array([7, 8])], leaf[7:8]
        (array(['seven', ''], dtype=object), array(['seven'], dtype=object))
    """

    def __init__(self, spec: RaggedSpec, rows: int) -> None:
        self.shape = (rows,)
        self.dtype = spec.dtype
        self._empty = spec.empty
        self._values: dict[int, Any] = {}

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, (int, np.integer)):
            return self._values.get(int(rows), self._empty)
        return self._gather(*self._numbers(rows))

    def __setitem__(self, rows: Any, values: Any) -> None:
        if isinstance(rows, (int, np.integer)):
            self._values[int(rows)] = values
            return
        numbers, _ = self._numbers(rows)
        self._values.update(zip(numbers, values.reshape(-1).tolist(), strict=True))

    def _numbers(self, rows: Any) -> tuple[Any, tuple[int, ...]]:
        if isinstance(rows, slice):
            numbers = range(*rows.indices(len(self)))
            return numbers, (len(numbers),)
        return rows.reshape(-1).tolist(), rows.shape

    def _gather(self, numbers: Any, shape: tuple[int, ...]) -> np.ndarray:
        values, empty = self._values, self._empty
        return objects([values.get(row, empty) for row in numbers], shape)

    def block(self, base: int, shape: tuple[int, ...]) -> np.ndarray:
        """The values of consecutive rows from `base` as a new array of objects of this shape."""
        return self._gather(range(base, base + math.prod(shape)), shape)

    def window(self, rows: slice) -> Window:
        """What always has the values that stand in `rows` at the time."""
        return Window(self, rows)

    def put(self, values: dict[int, Any]) -> None:
        """Write what `take` of another leaf has returned."""
        self._values.update(values)

    def take(self, start: int = 0, stop: int | None = None) -> dict[int, Any]:
        """Remove and return the values of rows [start, stop), by row; by default all."""
        if stop is None:
            taken, self._values = self._values, {}
            return taken
        rows: Any = range(start, stop)
        if len(self._values) < len(rows):
            rows = [row for row in self._values if start <= row < stop]
        return {row: self._values.pop(row) for row in rows if row in self._values}

    @property
    def held(self) -> int:
        """How many rows have a value at present."""
        return len(self._values)


class Window:
    """Rows of a ragged leaf, for those who read the same ones again and again."""

    def __init__(self, leaf: RaggedLeaf, rows: slice) -> None:
        self._leaf = leaf
        self._rows = rows

    def copy(self) -> tuple[Any, ...]:
        """The values at present, as Gymnasium batches them."""
        return tuple(self._leaf[self._rows].tolist())
