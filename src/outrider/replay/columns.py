"""The columns of a ring: what every row has, but for its observation.

Reward, flags and numbers of a row stand together, in one array of records of which the columns are views, which are not
contiguous: a sample needs most of them, and each row that is drawn would miss the cache once for every array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider.errors import SpecError, explain
from outrider.records.step_spec import StepSpec
from outrider.replay.storage import Storage, allocate
from outrider.spec import LeafSpec, row_nbytes

__all__ = ["FINAL", "FLAGS", "NUMBERS", "allocate_columns", "column_specs", "columns_nbytes", "require_extras"]

FLAGS = ("terminated", "truncated", "cut")
NUMBERS = ("episode_id", "step", "version")
FINAL = "final"
"""The slot of the true last observation behind a step, int32: no column of its own, but where columns stand."""


def column_specs(spec: StepSpec) -> dict[str, Any]:
    """The columns that every row has, but for its observation.

    "run" is the position at which the run of a step began: steps of a lane are of one run if nothing that ends, cuts or
    lacks a step is between them.
    """
    flag, number = LeafSpec((), np.dtype(np.bool_)), LeafSpec((), np.dtype(np.int64))
    return {
        "action": spec.action,
        "reward": spec.reward,
        **dict.fromkeys(FLAGS, flag),
        **dict.fromkeys((*NUMBERS, "run"), number),
        "extras": spec.extras,
        "info": spec.info,
        "obs_info": spec.obs_info,
    }


def allocate_columns(storage: Storage, spec: StepSpec, rows: int) -> tuple[dict[str, Any], np.ndarray]:
    """The columns by name, trees of arrays [rows, ...], and the records, [rows], that some of them are in; zeros."""
    specs = column_specs(spec)
    records = storage.zeros((rows,), _record(spec))
    together = {name: records[name] for name in specs if name in (records.dtype.names or ())}
    apart = {name: leaves for name, leaves in specs.items() if name not in together}
    found = together | allocate(storage, apart, rows)
    return {name: found[name] for name in specs}, records


def columns_nbytes(spec: StepSpec) -> int:
    """Bytes of a row of `allocate_columns`."""
    record = _record(spec)
    apart = {name: leaves for name, leaves in column_specs(spec).items() if name not in (record.names or ())}
    return record.itemsize + row_nbytes(apart)


def _record(spec: StepSpec) -> np.dtype[Any]:
    """What stands together: the widest first, so that nothing lies between."""
    reward = ("reward", spec.reward.dtype, spec.reward.shape)
    numbers = [(name, np.int64) for name in (*NUMBERS, "run")]
    return np.dtype([reward, *numbers, (FINAL, np.int32), *[(name, np.bool_) for name in FLAGS]], align=True)


def require_extras(given: dict[str, Any], wanted: dict[str, Any], where: str) -> None:
    """Refuse extras that a spec has not, and those that it has and that are missing.

    Raises:
        SpecError: names the first one.
    """
    for name in given:
        if name not in wanted:
            raise SpecError(
                explain(
                    expected=f"extras of the spec: {sorted(wanted) or 'none'}",
                    found=f"'{name}', which is no column",
                    where=where,
                    fix="leave it out, or declare it in StepSpec(extras=...); what ends an episode are two columns, "
                    "'terminated' and 'truncated'",
                )
            )
    for name in wanted:
        if name not in given:
            raise SpecError(
                explain(
                    expected=f"'{name}', an extra of the spec",
                    found=f"the extras {sorted(given)}" if given else "no extras",
                    where=where,
                    fix=f"pass {name}=, one row for each lane, or make the buffer with a spec without it",
                )
            )
