"""Checks of what users ask of vector environments, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from typing import Any

import numpy as np

from outrider import tree
from outrider.errors import ConfigError, SpecError, explain
from outrider.tree import Tree
from outrider.vector.store import indexer

__all__ = [
    "ActionTypeError",
    "MaskTypeError",
    "check_lanes",
    "check_mask",
    "lane_values",
    "reset_arguments",
    "write_actions",
]


class MaskTypeError(ConfigError, TypeError):
    """A reset mask that is no array, or not of booleans: a `TypeError` as well, as in Gymnasium."""


class ActionTypeError(SpecError, TypeError):
    """One number where a batch of actions is needed: a `TypeError` as well, as in Gymnasium."""


def check_lanes(env_ids: Any, away: np.ndarray) -> np.ndarray:
    """Return lane numbers as a sorted int64 array.

    Args:
        env_ids: what the user passed.
        away: bool [num_envs], which lanes are under way.

    Raises:
        ConfigError: a lane is named twice, does not exist, or is under way.
    """
    lanes = np.asarray(env_ids)
    good = lanes.ndim == 1 and lanes.size and lanes.dtype.kind in "iu" and np.unique(lanes).size == lanes.size
    if not good or lanes.min() < 0 or lanes.max() >= len(away):
        raise ConfigError(
            explain(
                expected=f"distinct lane numbers from 0 to {len(away) - 1}",
                found=repr(env_ids),
                where="env_ids",
                fix="name each lane once",
            )
        )
    if away[lanes].any():
        taken = np.sort(lanes[away[lanes]]).tolist()
        raise ConfigError(
            explain(
                expected="lanes that wait for an action",
                found=f"lanes {taken} under way",
                where="env_ids",
                fix="call recv() before sending to them again",
            )
        )
    return np.sort(lanes.astype(np.int64))


def write_actions(target: Tree, actions: Tree, lanes: Any) -> None:
    """Check a batch of actions and copy it to where the environments take it from.

    Args:
        target: tree of arrays [num_envs, ...].
        actions: tree of arrays [k, ...], in the order in which the user named the lanes.
        lanes: range or int64 array [k].

    Raises:
        SpecError: structure, shape or dtype do not fit.
    """
    if isinstance(target, np.ndarray):
        _write_leaf(target, actions, lanes)
    else:
        tree.map(lambda leaf, given: _write_leaf(leaf, given, lanes), target, actions)


def _write_leaf(leaf: np.ndarray, given: Any, lanes: Any) -> None:
    array = np.asarray(given)
    expected = (len(lanes), *leaf.shape[1:])
    fits = array.dtype == leaf.dtype or _keeps_values(array, leaf.dtype)
    if array.shape != expected or not fits:
        kind = SpecError if array.ndim else ActionTypeError
        raise kind(
            explain(
                expected=f"shape {expected}, dtype {leaf.dtype}",
                found=f"shape {array.shape}, dtype {array.dtype}",
                where="actions",
                fix="pass a batch with one action for each lane",
            )
        )
    leaf[indexer(lanes)] = array


def _keeps_values(array: np.ndarray, dtype: np.dtype[Any]) -> bool:
    """Whether an array becomes `dtype` without more than rounding."""
    if array.dtype.kind in "iub" and dtype.kind in "iu":
        return bool((array == array.astype(dtype)).all())
    return np.can_cast(array.dtype, dtype, "same_kind")


def check_mask(mask: Any, num_envs: int, *, begun: bool) -> np.ndarray:
    """Return the lanes that a reset mask marks.

    Args:
        mask: to check.
        num_envs: how many lanes there are.
        begun: whether anything was asked of them before: lanes without an observation cannot stay as they are.

    Raises:
        ConfigError: it is not a bool array [num_envs] with at least one True; a `MaskTypeError` if its type is wrong.
            Or it leaves lanes out that have not begun.
    """
    typed = isinstance(mask, np.ndarray) and mask.dtype == np.bool_
    if not typed or mask.shape != (num_envs,):
        kind = ConfigError if typed else MaskTypeError
        raise kind(
            explain(
                expected=f"a bool array [{num_envs}], one for each lane",
                found=f"shape {mask.shape}, dtype {mask.dtype}" if isinstance(mask, np.ndarray) else repr(mask),
                where="options['reset_mask']",
                fix="pass such an array, in which the lanes to reset are True",
            )
        )
    if not mask.any():
        raise ConfigError(
            explain(
                expected="at least one lane to reset",
                found="none: the mask is all False",
                where="options['reset_mask']",
                fix="call reset only where a lane has ended, e.g. `if mask.any():`",
            )
        )
    if not (begun or mask.all()):
        raise ConfigError(
            explain(
                expected="all lanes, none of which was ever reset",
                found=f"lanes {np.flatnonzero(mask).tolist()}",
                where="options['reset_mask']",
                fix="call reset() without a mask first",
            )
        )
    return np.flatnonzero(mask)


def lane_values(values: Sized, count: int, where: str) -> None:
    """Refuse what is not one value for each of `count` lanes.

    Raises:
        ConfigError: it is not.
    """
    if len(values) != count:
        raise ConfigError(
            explain(
                expected=f"{count} values, one for each lane",
                found=len(values),
                where=where,
                fix="pass a list, with None where there is nothing to say",
            )
        )


def reset_arguments(
    lanes: Iterable[int],
    seeds: Sequence[int | None] | None,
    options: Sequence[dict[str, Any] | None] | None,
) -> dict[int, tuple[int | None, dict[str, Any] | None]]:
    """Return (seed, options) of each of `lanes`.

    Raises:
        ConfigError: not one for each lane.
    """
    numbers = [int(lane) for lane in lanes]
    for name, given in (("seeds", seeds), ("options", options)):
        if given is not None:
            lane_values(given, len(numbers), name)
    plain = [None] * len(numbers) if seeds is None else [None if seed is None else int(seed) for seed in seeds]
    given_options = [None] * len(numbers) if options is None else options
    return dict(zip(numbers, zip(plain, given_options, strict=True), strict=True))
