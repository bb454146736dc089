"""Reading the infos of foreign vector environments, in every layout that is in use.

- Gymnasium 1.x: a dict of arrays [n, ...], masks under "_key", nested dicts; "final_obs" and "final_info" at an end.
- Gymnasium before 1.0: the same with "final_observation", and arrays of dicts.
- Older ones, and other libraries: one dict for each environment, with "terminal_observation" at an end.
- EnvPool, JAX: a dict of arrays [n, ...] without masks.

A value that is not one for each environment belongs to all of them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from outrider.errors import SpecError, explain
from outrider.tree import Tree

__all__ = ["copied", "final_infos", "final_observation", "has_finals", "lane_infos", "plain_layout"]

FINAL_OBSERVATIONS = ("final_obs", "final_observation", "terminal_observation")
"""Names under which the true last observation is found."""

FINAL_INFO = "final_info"


def lane_infos(
    infos: Any, places: Iterable[tuple[int, int]], count: int, keys: tuple[str, ...] | None = None
) -> dict[int, dict[str, Any]]:
    """Take the infos of single environments out of those of a batch; copies, and only those that are not empty.

    Args:
        infos: of `count` environments, in any layout; what belongs to their ends is left out.
        places: pairs of lane and index in the batch.
        count: how many environments the batch is of.
        keys: those that are wanted; None: all.

    Returns:
        Info dicts by lane.

    Example:
        >>> lane_infos({"x": np.array([1, 2]), "_x": np.array([False, True])}, [(4, 0), (7, 1)], 2)
        {7: {'x': np.int64(2)}}
    """
    found = {}
    for lane, index in places:
        info = _one(infos, index, count, keys)
        if info:
            found[lane] = info
    return found


def final_infos(
    infos: Any, places: Iterable[tuple[int, int]], count: int, keys: tuple[str, ...] | None = None
) -> dict[int, dict[str, Any]]:
    """The same for the infos of the steps that ended episodes in environments that are reset already."""
    found = {}
    for lane, index in places:
        final = _at_end(infos, (FINAL_INFO,), index, count)
        if isinstance(final, Mapping):
            info = {key: _copy(value) for key, value in final.items() if keys is None or key in keys}
            if info:
                found[lane] = info
    return found


def final_observation(infos: Any, index: int, count: int) -> Tree:
    """The true last observation of an environment that has been reset in the step that ended it; None: not known."""
    return _at_end(infos, FINAL_OBSERVATIONS, index, count)


def has_finals(infos: Any) -> bool:
    """Whether these infos have last observations: what only same-step sources give."""
    if isinstance(infos, Mapping):
        return any(key in infos for key in FINAL_OBSERVATIONS)
    return any(key in info for info in infos for key in FINAL_OBSERVATIONS)


def plain_layout(infos: Any) -> bool:
    """Whether these infos are as Gymnasium 1.x has them, so that they can be handed on."""
    return isinstance(infos, dict) and not any(key in infos for key in FINAL_OBSERVATIONS[1:])


def copied(infos: dict[str, Any]) -> dict[str, Any]:
    """Infos whose arrays nobody else writes to."""
    return {
        key: copied(value)
        if isinstance(value, dict)
        # Arrays in an array: those of environments that write to them again.
        else (copy.deepcopy(value) if key in FINAL_OBSERVATIONS else _copy(value))
        for key, value in infos.items()
    }


def _one(infos: Any, index: int, count: int, keys: tuple[str, ...] | None) -> dict[str, Any]:
    """The info of one environment."""
    taken = {}
    left_out = (*FINAL_OBSERVATIONS, FINAL_INFO)
    if not isinstance(infos, Mapping):
        return {
            key: _copy(value) for key, value in _listed(infos, index, count).items() if _wanted(key, keys, left_out)
        }
    for key, value in infos.items():
        if _is_mask(key, infos) or not _wanted(key, keys, left_out) or not _present(infos, key, index):
            continue
        taken[key] = _pick(value, index, count)
    return taken


def _wanted(key: Any, keys: tuple[str, ...] | None, left_out: tuple[str, ...]) -> bool:
    return key not in left_out and (keys is None or key in keys)


def _at_end(infos: Any, names: tuple[str, ...], index: int, count: int) -> Any:
    """What is there for an environment under the first of `names` that has anything for it."""
    if not isinstance(infos, Mapping):
        info = _listed(infos, index, count)
        return next((info[name] for name in names if info.get(name) is not None), None)
    for name in names:
        if name in infos and _present(infos, name, index):
            value = _pick(infos[name], index, count)
            if value is not None:
                return value
    return None


def _listed(infos: Any, index: int, count: int) -> Mapping[str, Any]:
    if isinstance(infos, (list, tuple)) and len(infos) == count:
        own = infos[index]
        if isinstance(own, Mapping):
            return own
    raise SpecError(
        explain(
            expected=f"a dict, or a list of {count} dicts",
            found=f"{type(infos).__name__} {infos!r:.60}",
            where="infos",
            fix="return infos as Gymnasium's vector environments do",
        )
    )


def _is_mask(key: Any, infos: Mapping[str, Any]) -> bool:
    return isinstance(key, str) and key.startswith("_") and key[1:] in infos


def _present(infos: Mapping[str, Any], key: Any, index: int) -> bool:
    mask = infos.get(f"_{key}")
    return mask is None or bool(np.asarray(mask)[index])


def _pick(value: Any, index: int, count: int) -> Any:
    """The part of one environment, a copy."""
    if isinstance(value, Mapping):
        return {
            key: _pick(part, index, count)
            for key, part in value.items()
            if not _is_mask(key, value) and _present(value, key, index)
        }
    if isinstance(value, tuple) and all(_is_batch(part, count) for part in value):
        return tuple([_pick(part, index, count) for part in value])
    if isinstance(value, (list, tuple)):
        return value[index] if len(value) == count else value
    if _is_batch(value, count):
        part = np.asarray(value)[index]
        # As a bool: Gymnasium makes arrays of bools of these, and arrays of objects of NumPy's.
        return bool(part) if isinstance(part, np.bool_) else _copy(part)
    return _copy(value)


def _is_batch(value: Any, count: int) -> bool:
    return bool(getattr(value, "ndim", 0)) and value.shape[0] == count


def _copy(value: Any) -> Any:
    return np.array(value) if hasattr(value, "__array__") and not isinstance(value, np.generic) else value
