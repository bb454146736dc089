"""From the actions of a policy to those of the environments, which only ever receive members of their space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium import Space, spaces

from outrider.collect.kernels import first_outside
from outrider.errors import ConfigError, PolicyError, explain
from outrider.policies.base import ActionConvention
from outrider.tree import Tree

__all__ = ["ActionMap", "ActionMapName", "check_action_map"]

ActionMapName: TypeAlias = Literal["auto", "clip", "rescale"] | None
LeafMap: TypeAlias = Callable[[np.ndarray, Any], np.ndarray]
"""`apply(actions, at)`: write actions [k, ...] for the lanes `at`; return what is to be stored."""


def check_action_map(name: Any) -> ActionMapName:
    """Return the name if it is one.

    Raises:
        ConfigError: it is not.
    """
    if name not in ("auto", "clip", "rescale", None):
        raise ConfigError(
            explain(
                expected="'auto', 'clip', 'rescale' or None",
                found=repr(name),
                where="action_map",
                fix="choose one of them",
            )
        )
    return name  # type: ignore[no-any-return]  # the test above is not understood as narrowing


class ActionMap:
    """Writes a batch of actions where the environments take theirs from.

    Boxes with finite bounds are clipped ("auto", "clip"), rescaled from [-1, 1] ("rescale", and "auto" for a policy
    whose convention is "unit") or passed on as they are (None); other bounds are left alone. Discrete, MultiDiscrete
    and MultiBinary actions must be members already; with the convention "index" the `start` of a Discrete is added.

    What is stored is the policy's own action. A policy whose convention is "env", such as `RandomPolicy`, gives actions
    of the environment's scale: under "rescale" they are passed on, and stored as what would have been rescaled to them.
    """

    def __init__(
        self, space: Space[Any], target: Tree, name: ActionMapName, convention: ActionConvention | None
    ) -> None:
        self._maps: list[tuple[LeafMap, str]] = []
        self._build(space, target, "action", (name, convention))

    def _build(self, space: Space[Any], target: Tree, path: str, how: tuple[ActionMapName, Any]) -> None:
        if isinstance(space, spaces.Dict):
            for key, sub in space.spaces.items():
                self._build(sub, target[key], f"{path}/{key}", how)
        elif isinstance(space, spaces.Tuple):
            for index, sub in enumerate(space.spaces):
                self._build(sub, target[index], f"{path}/{index}", how)
        else:
            self._maps.append((_leaf_map(space, target, path, how), path))

    def arrange(self, paths: list[str]) -> None:
        """Expect leaves in the order of `paths`, those of the policy's action tree."""
        by_path = {path: one for one, path in self._maps}
        self._maps = [(by_path[path], path) for path in paths]

    def __call__(self, leaves: list[np.ndarray], at: Any) -> list[np.ndarray]:
        """Write the leaves [k, ...] of a batch for the lanes `at`; return the leaves to be stored.

        Raises:
            PolicyError: an action is no member of its space and no mapping makes it one; names path, lane and value.
        """
        return [apply(leaf, at) for (apply, _), leaf in zip(self._maps, leaves, strict=False)]


def _leaf_map(space: Space[Any], target: np.ndarray, path: str, how: tuple[ActionMapName, Any]) -> LeafMap:
    name, convention = how
    if isinstance(space, spaces.Box):
        if convention == "unit" and name == "auto":
            name = "rescale"
        return _box_map(space, target, path, name, stored_inverse=convention == "env")
    low, high, shift = _bounds(space)
    offset = shift if convention == "index" else 0
    flat = (np.broadcast_to(low, space.shape).reshape(-1), np.broadcast_to(high, space.shape).reshape(-1))
    low, high = (np.ascontiguousarray(bound, np.int64) for bound in flat)

    def apply(actions: np.ndarray, at: Any) -> np.ndarray:
        # Compared before the cast to the space's dtype, which could wrap around.
        wide = (actions + offset if offset else actions).astype(np.int64).reshape(len(actions), -1)
        bad = first_outside(wide, low, high)
        if bad >= 0:
            raise _outside(space, actions[bad], path, _lane(at, bad))
        target[at] = wide.reshape((len(actions), *target.shape[1:]))
        return actions

    return apply


def _bounds(space: Space[Any]) -> tuple[Any, Any, int]:
    """Lowest and highest value of a space of integers, and where the values of a Discrete begin."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return start, start + int(space.n) - 1, start
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1, 0
    return 0, 1, 0


def _box_map(
    space: spaces.Box, target: np.ndarray, path: str, name: ActionMapName, *, stored_inverse: bool
) -> LeafMap:
    # Unbounded elements keep infinite bounds here, which leaves them alone when clipping.
    finite = space.bounded_below & space.bounded_above
    low = np.where(finite, space.low, -np.inf) if space.dtype.kind == "f" else space.low
    high = np.where(finite, space.high, np.inf) if space.dtype.kind == "f" else space.high
    if name == "rescale" and space.dtype.kind == "f" and finite.any():
        return _rescaling(space, target, path, finite, stored_inverse=stored_inverse)
    if name == "rescale" and space.dtype.kind != "f":
        raise ConfigError(
            explain(
                expected="Boxes of floats",
                found=repr(space),
                where=f"action_map='rescale' at '{path}'",
                fix="use action_map='clip'",
            )
        )
    if name is None:
        low, high = np.full(space.shape, -np.inf), np.full(space.shape, np.inf)
    low, high = low.astype(space.dtype), high.astype(space.dtype)

    def clip(actions: np.ndarray, at: Any) -> np.ndarray:
        _check_numbers(actions, path, at)
        target[at] = np.minimum(np.maximum(actions, low), high)
        return actions

    def as_it_is(actions: np.ndarray, at: Any) -> np.ndarray:
        target[at] = actions
        return actions

    return as_it_is if name is None else clip


def _rescaling(
    space: spaces.Box, target: np.ndarray, path: str, finite: np.ndarray, *, stored_inverse: bool
) -> LeafMap:
    low = np.where(finite, space.low, 0.0).astype(np.float64)
    span = np.where(finite, space.high.astype(np.float64) - space.low.astype(np.float64), 1.0)

    def rescale(actions: np.ndarray, at: Any) -> np.ndarray:
        _check_numbers(actions, path, at)
        wide = low + (np.clip(actions.astype(np.float64), -1, 1) + 1) * 0.5 * span
        target[at] = np.clip(np.where(finite, wide, actions).astype(space.dtype), space.low, space.high)
        return actions

    def invert(actions: np.ndarray, at: Any) -> np.ndarray:
        _check_numbers(actions, path, at)
        target[at] = np.clip(actions.astype(space.dtype), space.low, space.high)
        unit = (actions.astype(np.float64) - low) / np.where(span > 0, span, 1.0) * 2 - 1
        return np.where(finite, unit, actions).astype(actions.dtype)

    return invert if stored_inverse else rescale


def _check_numbers(actions: np.ndarray, path: str, at: Any) -> None:
    if np.isnan(actions).any():
        bad = int(np.argwhere(np.isnan(actions))[0][0])
        raise PolicyError(
            explain(
                expected="numbers",
                found=f"{actions[bad]!r}",
                where=f"policy output at '{path}', lane {_lane(at, bad)}",
                fix="look for exploding weights or invalid observations",
            )
        )


def _lane(at: Any, index: int) -> int:
    return at.start + index if isinstance(at, slice) else int(at[index])


def _outside(space: Space[Any], action: np.ndarray, path: str, lane: int) -> PolicyError:
    return PolicyError(
        explain(
            expected=f"a member of {space!r}",
            found=f"{action!r}",
            where=f"policy output at '{path}', lane {lane}",
            fix="return members of the action space, or set the policy's `actions` to 'index' if it counts from 0",
        )
    )
