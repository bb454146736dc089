"""Whether the actions of a policy can belong to a space: structure, shape and dtype; values are left to the mapping."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from outrider.errors import PolicyError, explain
from outrider.policies.base import ActionConvention
from outrider.tree import Tree

__all__ = ["check_action"]


def check_action(space: gym.Space[Any], action: Tree, n: int, convention: ActionConvention = "env") -> None:
    """Refuse a batch of actions whose structure, shape or dtype cannot be that of n members of `space`.

    A dtype fits when it is of the kind of the space's (float64 for a float32 Box) or casts to it without loss (int8 for
    a float32 Box, bool for Discrete); int64 for a float32 Box, or floats for Discrete, do not. In the convention "unit"
    every Box takes floats.

    Args:
        space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of them.
        action: tree of NumPy arrays [n, ...].
        n: the count of rows.
        convention: how the policy means its actions.

    Raises:
        PolicyError: names the path in the action, what the space wants and what was found.

    Example:
        >>> check_action(spaces.Discrete(3), np.zeros(4, np.int64), 4)
        >>> check_action(spaces.Discrete(3), np.zeros((4, 1), np.int64), 4)
        Traceback (most recent call last):
            ...
        outrider.errors.PolicyError: action: expected shape (4,) for Discrete(3), found shape (4, 1). To fix it: ...
    """
    _check(space, action, n, convention, "action")


def _check(space: gym.Space[Any], action: Tree, n: int, convention: ActionConvention, path: str) -> None:
    if isinstance(space, spaces.Dict):
        if not isinstance(action, dict) or action.keys() != space.spaces.keys():
            raise _wrong_structure(f"a dict with keys {sorted(space.spaces, key=str)}", action, path)
        for key, child in space.spaces.items():
            _check(child, action[key], n, convention, f"{path}/{key}")
    elif isinstance(space, spaces.Tuple):
        if not isinstance(action, tuple) or len(action) != len(space.spaces):
            raise _wrong_structure(f"a tuple of {len(space.spaces)} action batches", action, path)
        for index, child in enumerate(space.spaces):
            _check(child, action[index], n, convention, f"{path}/{index}")
    elif isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        _check_leaf(space, action, n, convention, path)
    else:
        msg = explain(
            expected="a Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple space",
            found=repr(space),
            where=path,
            fix="wrap the environment so that its actions are arrays of a fixed shape",
        )
        raise PolicyError(msg)


def _check_leaf(space: gym.Space[Any], action: Tree, n: int, convention: ActionConvention, path: str) -> None:
    if not isinstance(action, np.ndarray):
        raise _wrong_structure(f"one array for {space}", action, path)
    shape = (n, *(space.shape or ()))
    if action.shape != shape:
        msg = explain(
            expected=f"shape {shape} for {space}",
            found=f"shape {action.shape}",
            where=path,
            fix="return one action of the shape of the space for each of the rows",
        )
        raise PolicyError(msg)
    dtype = np.dtype(space.dtype)
    if convention == "unit" and isinstance(space, spaces.Box):
        dtype = np.dtype(np.result_type(dtype, np.float32))
    if not _fits(action.dtype, dtype):
        msg = explain(
            expected=f"{_kind(dtype)} such as {dtype} for {space}",
            found=f"dtype {action.dtype}",
            where=path,
            fix="let the policy return that dtype; nothing is cast where values could be lost",
        )
        raise PolicyError(msg)


def _fits(found: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    return found == wanted or _kind(found) == _kind(wanted) or bool(np.can_cast(found, wanted, "safe"))


def _kind(dtype: np.dtype[Any]) -> str:
    return {"i": "integers", "u": "integers", "f": "floats", "b": "bools"}.get(dtype.kind, f"dtype {dtype}")


def _wrong_structure(expected: str, action: Tree, path: str) -> PolicyError:
    if isinstance(action, dict):
        found = f"a dict with keys {sorted(action, key=str)}"
    elif isinstance(action, tuple):
        found = f"a tuple of {len(action)}"
    else:
        found = "one array" if isinstance(action, np.ndarray) else f"an object of type {type(action).__name__}"
    fix = 'return actions of the structure of the space; with extras: {"action": actions, "value": values, ...}'
    return PolicyError(explain(expected=expected, found=found, where=path, fix=fix))
