"""Selected info values as columns: sparse while they are collected, masked arrays when they are handed out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from outrider.errors import SpecError, explain
from outrider.records.step_spec import StepSpec
from outrider.spec import LeafSpec

__all__ = ["InfoTable", "info_specs"]

NUMBER, MASK = LeafSpec((), np.float64), LeafSpec((), np.bool_)
"""What a key is taken to be that was never seen, and its mask."""


class InfoTable:
    """Values of info keys by row number.

    A key that was absent in a row is masked there; types are promoted without loss (3 and 2.7 are 3.0 and 2.7), and a
    promotion holds for all later columns, so that their dtype settles.

    Args:
        keys: the keys that are wanted; each has its columns from the start.
    """

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._values: dict[str, dict[int, np.ndarray]] = {key: {} for key in keys}
        self._known: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}

    def put(self, row: int, info: dict[str, Any]) -> None:
        """Let `row` have the wanted values of an info dict, and nothing else.

        Raises:
            SpecError: a value is not a number, a bool, a string or an array of them, or changes its shape.
        """
        for key, values in self._values.items():
            if key in info:
                array = np.array(info[key])
                self._settle(key, array)
                values[row] = array
            else:
                values.pop(row, None)

    def _settle(self, key: str, array: np.ndarray) -> None:
        dtype, shape = self._known.get(key, (array.dtype, array.shape))
        promoted = np.promote_types(dtype, array.dtype) if (dtype.kind == "U") == (array.dtype.kind == "U") else None
        if promoted is None or promoted.kind not in "biufcU" or shape != array.shape:
            raise SpecError(
                explain(
                    expected=f"shape {shape}, dtype {dtype}" if key in self._known else "numbers, bools or strings",
                    found=f"shape {array.shape}, dtype {array.dtype}",
                    where=f"info at '{key}'",
                    fix="leave the key out of info_keys, or let the environment always give the same kind of value "
                    "(returns and lengths of episodes are in collector.stats)",
                )
            )
        self._known[key] = promoted, shape

    def move(self, sources: Any, targets: Any) -> None:
        """Let rows have what other rows have, one by one; `sources` and `targets` are iterables of row numbers."""
        pairs = [(int(source), int(target)) for source, target in zip(sources, targets, strict=True)]
        for values in self._values.values():
            for source, target in pairs:
                values.pop(target, None)
                if source in values:
                    values[target] = values[source]

    def columns(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Columns [*rows.shape, ...] of each key, and their masks, bool of the shape of `rows`, under "_key"."""
        found: dict[str, np.ndarray] = {}
        flat = rows.reshape(-1).tolist()
        for key, values in self._values.items():
            dtype, shape = self._known.get(key, (NUMBER.dtype, NUMBER.shape))
            column, mask = np.zeros((len(flat), *shape), dtype), np.zeros(len(flat), np.bool_)
            for index, row in enumerate(flat):
                if row in values:
                    column[index], mask[index] = values[row], True
            found[key] = column.reshape((*rows.shape, *shape))
            found[f"_{key}"] = mask.reshape(rows.shape)
        return found

    def __bool__(self) -> bool:
        """Whether any key is wanted."""
        return bool(self._values)

    @property
    def known(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Dtype and shape of the keys that were seen."""
        return dict(self._known)

    def specs(self, others: Mapping[str, LeafSpec]) -> dict[str, LeafSpec]:
        """Specs of the columns, masks included: of keys that were seen, else those of `others`, else a number."""
        found: dict[str, LeafSpec] = {}
        for key in self._values:
            own = LeafSpec(self._known[key][1], self._known[key][0]) if key in self._known else None
            found[key] = own or others.get(key, NUMBER)
            found[f"_{key}"] = MASK
        return found

    def learn(self, known: dict[str, tuple[np.dtype[Any], tuple[int, ...]]]) -> None:
        """Take over what another table has seen.

        Raises:
            SpecError: a key has another kind or shape here.
        """
        for key, (dtype, shape) in known.items():
            self._settle(key, np.zeros(shape, dtype))

    def conform(self, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Columns of another table, whose keys `learn` was told, in the dtypes and shapes of this one."""
        found = dict(columns)
        for key, (dtype, shape) in self._known.items():
            rows = columns[f"_{key}"].shape
            seen = columns[key].shape == (*rows, *shape)
            # Of another shape are only columns without a value.
            found[key] = columns[key].astype(dtype) if seen else np.zeros((*rows, *shape), dtype)
        return found

    def take(self, start: int, stop: int) -> list[tuple[int, dict[str, np.ndarray]]]:
        """Remove what belongs to rows [start, stop) and return it as (row, info), for `put` of another table."""
        taken: dict[int, dict[str, np.ndarray]] = {}
        for key, values in self._values.items():
            for row in [row for row in values if start <= row < stop]:
                taken.setdefault(row, {})[key] = values.pop(row)
        return list(taken.items())


def info_specs(infos: InfoTable, obs_infos: InfoTable, known: StepSpec | None = None) -> dict[str, dict[str, LeafSpec]]:
    """Specs of the columns "info" and "obs_info", as far as values have been seen: of one, of the other, or `known`."""
    info, obs_info = ({}, {}) if known is None else (known.info, known.obs_info)
    return {"info": infos.specs(obs_infos.specs(info)), "obs_info": obs_infos.specs(infos.specs(obs_info))}
