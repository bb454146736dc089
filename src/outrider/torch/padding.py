"""Batches padded to a size: so that rows do not depend on how many there are, or for modules that want one size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider import tree
from outrider.errors import ConfigError, PolicyError, explain
from outrider.tree import Tree

__all__ = ["Padding"]

EXACT = 4
"""Rows of a matrix product are rounded alike in batches of this many and more (measured; kernels differ below)."""


@dataclass(frozen=True)
class Padding:
    """How batches are padded: up to `rows`, and no further if they are larger, unless `fixed` refuses those."""

    rows: int
    fixed: bool

    @classmethod
    def of(cls, pad: object) -> Padding:
        """The padding of an option: True, or a number of rows.

        Raises:
            ConfigError: it is neither.
        """
        if pad is True:
            return cls(EXACT, fixed=False)
        if isinstance(pad, int) and not isinstance(pad, bool) and pad >= 1:
            return cls(pad, fixed=True)
        expected, fix = "True, False or a number of rows", "pass one of these"
        raise ConfigError(explain(expected=expected, found=repr(pad), where="TorchPolicy(pad)", fix=fix))

    def size(self, n: int) -> int:
        """The rows that a batch of n is padded to.

        Raises:
            PolicyError: it is larger than the fixed size.
        """
        if self.fixed and n > self.rows:
            raise PolicyError(
                explain(
                    expected=f"at most {self.rows} rows",
                    found=f"a batch of {n}",
                    where=f"TorchPolicy(pad={self.rows})",
                    fix="pass pad=k for the largest batch k that can arrive: the number of environments",
                )
            )
        return max(n, self.rows)

    def extend(self, batch: Tree, size: int) -> Tree:
        """Repeat the first row of each array [n, ...] at its end, up to `size` rows."""

        def extended(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            out = np.empty((size, *array.shape[1:]), array.dtype)
            out[: len(array)] = array
            out[len(array) :] = array[:1]
            return out

        return tree.map(extended, batch)

    def trim(self, output: dict[str, Tree], size: int, n: int) -> dict[str, Tree]:
        """Cut each array [size, ...] back to n rows.

        Raises:
            PolicyError: an array has another number of rows.
        """
        for path, array in tree.items(output):
            if array.ndim == 0 or len(array) != size:
                raise PolicyError(
                    explain(
                        expected=f"{size} rows, as many as the padded batch",
                        found=f"shape {array.shape}",
                        where=f"policy output at '{path}'",
                        fix="return one row for each row of the observations",
                    )
                )
        trimmed: dict[str, Tree] = tree.take(output, slice(0, n))
        return trimmed
