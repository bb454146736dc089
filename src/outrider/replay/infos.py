"""Columns of infos, of which nobody knows the kind before the first value has come.

The columns of a ring take the dtype and the shape of the first values, and from then on types are promoted without
loss, as those of a collector's rollouts are. A key without its mask, "_key", stays what it was declared as.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import numpy as np

from outrider.records.episodes import Episodes
from outrider.records.rollout import Rollout
from outrider.records.steps import Steps
from outrider.replay.ring import Ring
from outrider.replay.storage import allocate
from outrider.spec import LeafSpec, RaggedSpec
from outrider.tree import Tree
from outrider.undisturbed import undisturbed

__all__ = ["Record", "settled"]

Record = TypeVar("Record", Rollout, Steps, Episodes)


def settled(ring: Ring, record: Record) -> Record:
    """A record with infos as the ring has columns for them, after these have become what its values need.

    What cannot be made alike is left as it is, for a check to name.
    """
    axes = 2 if isinstance(record, Rollout) else 1
    changed: dict[str, Any] = {}
    for name in ("info", "obs_info"):
        if getattr(ring.spec, name):
            given = getattr(record, name)
            found = _settled(ring, name, given, axes)
            if found is not given:
                changed[name] = found
    return dataclasses.replace(record, **changed) if changed else record


def _settled(ring: Ring, name: str, columns: dict[str, Tree], axes: int) -> dict[str, Tree]:
    found = columns
    for key, spec in getattr(ring.spec, name).items():
        column, mask = columns.get(key), columns.get(f"_{key}")
        if not isinstance(column, np.ndarray) or not isinstance(mask, np.ndarray) or isinstance(spec, RaggedSpec):
            continue
        given = LeafSpec.of(column, axes)
        if given == spec or mask.shape != column.shape[:axes]:
            continue
        fitting = spec.zeros(*mask.shape)
        if mask.any():
            wanted = _joint(spec, given) if _has_values(ring, name, key) else given
            if wanted is None:
                continue
            if wanted != spec:
                _remake(ring, name, key, wanted)
            fitting = column.astype(wanted.dtype, copy=False)
        found = {**found, key: fitting}
    return found


def _joint(one: LeafSpec, other: LeafSpec) -> LeafSpec | None:
    """What has room for the values of both; None if nothing has."""
    strings = {spec.dtype.kind == "U" for spec in (one, other)}
    if one.shape != other.shape or len(strings) > 1 or not all(spec.dtype.kind in "biufcU" for spec in (one, other)):
        return None
    return LeafSpec(one.shape, np.promote_types(one.dtype, other.dtype))


def _has_values(ring: Ring, name: str, key: str) -> bool:
    """Whether a step that is there has a value of this key."""
    mask: Any = ring.columns[name].get(f"_{key}")
    return bool(len(ring)) and (mask is None or bool(mask[ring.serials() % ring.rows].any()))


def _remake(ring: Ring, name: str, key: str, spec: LeafSpec) -> None:
    """Give a column another dtype, of the same values; or another shape, where no step has a value of it."""
    columns = ring.columns[name]
    column = allocate(ring.storage, spec, ring.rows)
    if columns[key].shape == column.shape:
        used = min(ring.rows, (int(ring.heads.max()) + 1) * ring.num_envs)
        column[:used] = columns[key][:used]
    with undisturbed():
        columns[key] = column
        specs = getattr(ring.spec, name) | {key: spec}
        ring.spec = dataclasses.replace(ring.spec, **{name: specs})
