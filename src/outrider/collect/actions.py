"""From the actions of a policy to those of the environments, which only ever receive members of their space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium import Space, spaces

from outrider.errors import ConfigError, PolicyError, explain
from outrider.policies.base import ActionConvention
from outrider.tree import Tree

__all__ = ["ActionMap", "ActionMapName", "UnitScale", "check_action_map", "first_of", "in_unit_scale"]

ActionMapName: TypeAlias = Literal["auto", "clip", "rescale"] | None
LeafMap: TypeAlias = Callable[[np.ndarray, Any], np.ndarray]
"""`apply(actions, at)`: write actions [k, ...] for the lanes `at`, a slice or an int64 array; return what is to be
stored. A PolicyError names path, lane and value of an action that is no member and that nothing makes one."""


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

    Boxes are clipped to their finite bounds ("auto", "clip"), rescaled from [-1, 1] where both bounds are finite
    ("rescale", and "auto" for a policy whose convention is "unit") or passed on as they are (None). Infinite bounds
    change nothing. Discrete, MultiDiscrete and MultiBinary actions must be members already; with the convention "index"
    the `start` of the space is added. NaN is refused everywhere.

    What is stored is the policy's own action. A policy whose convention is "env", such as `RandomPolicy`, gives actions
    of the environment's scale: under "rescale" they are passed on, and stored as what would have been rescaled to them.

    Attributes:
        applied: what is to be done with each leaf of the policy's action, once `arrange` knows their order.
    """

    def __init__(
        self, space: Space[Any], target: Tree, name: ActionMapName, convention: ActionConvention | None
    ) -> None:
        self._maps: list[tuple[LeafMap, str]] = []
        self.applied: list[LeafMap] = []
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
        """Put the leaves in the order of `paths`, those of the policy's action tree."""
        by_path = {path: one for one, path in self._maps}
        self.applied = [by_path[path] for path in paths]


def _leaf_map(space: Space[Any], target: np.ndarray, path: str, how: tuple[ActionMapName, Any]) -> LeafMap:
    name, convention = how
    if not isinstance(space, spaces.Box):
        return _integers(space, target, path, counts_from_zero=convention == "index")
    if name == "rescale" or in_unit_scale(name, convention):
        return _rescaling(space, target, path, stored_inverse=convention == "env")
    if space.dtype.kind in "iu":
        return _whole_numbers(space, target, path, clips=name is not None)
    return _clipping(space, target, path) if name is not None else _passing(target, path)


def _integers(space: Space[Any], target: np.ndarray, path: str, *, counts_from_zero: bool) -> LeafMap:
    first, last = _bounds(space)
    offset: Any = first if counts_from_zero else 0
    lowest, highest = first - offset, last - offset

    def discrete(actions: np.ndarray, at: Any) -> np.ndarray:
        # Of a few numbers Python finds the extremes faster than NumPy.
        values = actions.tolist()
        if min(values) < lowest or max(values) > highest:
            refuse(actions, at)
        target[at] = actions.astype(np.int64) + offset if counts_from_zero else actions
        return actions

    def several(actions: np.ndarray, at: Any) -> np.ndarray:
        # Compared before the cast to the space's dtype, which could wrap around.
        wide = actions.astype(np.int64) + offset
        if ((wide < first) | (wide > last)).any():
            refuse(actions, at)
        target[at] = wide
        return actions

    def refuse(actions: np.ndarray, at: Any) -> None:
        wide = actions.astype(np.int64) + offset
        row = int(np.argwhere((wide < first) | (wide > last))[0][0])
        raise _outside(space, actions[row], path, _lane(at, row))

    return discrete if isinstance(space, spaces.Discrete) else several


def first_of(space: Space[Any]) -> Any:
    """Lowest value of a space of integers: a number, or int64 of its shape."""
    if isinstance(space, spaces.Discrete):
        return int(space.start)
    return space.start.astype(np.int64) if isinstance(space, spaces.MultiDiscrete) else 0


def _bounds(space: Space[Any]) -> tuple[Any, Any]:
    """Lowest and highest value of a space of integers."""
    first = first_of(space)
    if isinstance(space, spaces.Discrete):
        return first, first + int(space.n) - 1
    return (first, first + space.nvec.astype(np.int64) - 1) if isinstance(space, spaces.MultiDiscrete) else (0, 1)


def _whole_numbers(space: spaces.Box, target: np.ndarray, path: str, *, clips: bool) -> LeafMap:
    """For Boxes of integers: compared in 64 bits, because a narrower integer or a float would change the values."""
    low, high = space.low, space.high
    if not clips:
        info = np.iinfo(np.dtype(space.dtype).name)
        low, high = np.full(space.shape, info.min, space.dtype), np.full(space.shape, info.max, space.dtype)
    bounds = {domain: (_within(low, domain), _within(high, domain)) for domain in (np.int64, np.uint64)}

    def apply(actions: np.ndarray, at: Any) -> np.ndarray:
        domain = np.uint64 if actions.dtype == np.uint64 else np.int64
        wide = actions.astype(domain)
        inside = np.minimum(np.maximum(wide, bounds[domain][0]), bounds[domain][1])
        if not clips and (inside != wide).any():
            row = int(np.argwhere(inside != wide)[0][0])
            raise _outside(space, actions[row], path, _lane(at, row))
        target[at] = inside.astype(space.dtype)
        return actions

    return apply


def _within(bounds: np.ndarray, domain: Any) -> np.ndarray:
    """Bounds as integers of 64 bits, the nearest ones where they have none."""
    info = np.iinfo(domain)
    nearest = [min(max(int(bound), int(info.min)), int(info.max)) for bound in bounds.reshape(-1)]
    return np.array(nearest, domain).reshape(bounds.shape)


def _clipping(space: spaces.Box, target: np.ndarray, path: str) -> LeafMap:
    low, high = space.low, space.high

    def clip(actions: np.ndarray, at: Any) -> np.ndarray:
        _check_numbers(actions, path, at)
        target[at] = np.minimum(np.maximum(actions, low), high)
        return actions

    return clip


def _passing(target: np.ndarray, path: str) -> LeafMap:
    def pass_on(actions: np.ndarray, at: Any) -> np.ndarray:
        _check_numbers(actions, path, at)
        target[at] = actions
        return actions

    return pass_on


def _rescaling(space: spaces.Box, target: np.ndarray, path: str, *, stored_inverse: bool) -> LeafMap:
    scale = UnitScale(space, path)

    def rescale(actions: np.ndarray, at: Any) -> np.ndarray:
        _check_numbers(actions, path, at)
        target[at] = scale.to_bounds(actions)
        return actions

    def invert(actions: np.ndarray, at: Any) -> np.ndarray:
        _check_numbers(actions, path, at)
        if actions.dtype.kind != "f":
            raise _no_floats(actions, path)
        target[at], unit = scale.to_unit(actions)
        return unit.astype(actions.dtype)

    return invert if stored_inverse else rescale


def in_unit_scale(name: ActionMapName, convention: ActionConvention | None) -> bool:
    """Whether under this action map a policy of this convention means Boxes in [-1, 1] and not in their bounds."""
    return convention != "env" if name == "rescale" else name == "auto" and convention == "unit"


class UnitScale:
    """From [-1, 1] to the bounds of a Box of floats and back; an element with an infinite bound stays what it is.

    Raises:
        ConfigError: it is a Box of integers.

    Example:
        >>> scale = UnitScale(spaces.Box(-1.0, 3.0, (1,)), "action")
        >>> scale.to_bounds(np.array([[0.5]])), scale.to_unit(np.array([[4.0]]))
        (array([[2.]]), (array([[3.]]), array([[1.]])))
    """

    def __init__(self, space: spaces.Box, path: str) -> None:
        if space.dtype.kind != "f":
            raise ConfigError(
                explain(
                    expected="Boxes of floats",
                    found=repr(space),
                    where=f"action_map='rescale' at '{path}'",
                    fix="use action_map='clip'",
                )
            )
        self._bounds = space.low, space.high
        self._finite = space.bounded_below & space.bounded_above
        # Halved bounds: the distance of the largest numbers is no number any more.
        low, high = (np.where(self._finite, bound, 0.0).astype(np.float64) / 2 for bound in self._bounds)
        self._low, self._high, self._half = low, high, np.where(high > low, high - low, 1.0)

    def to_bounds(self, actions: np.ndarray) -> np.ndarray:
        """Actions [n, ...] in [-1, 1], clipped to that, in the bounds."""
        unit = np.clip(actions.astype(np.float64), -1, 1)
        wide = (1 - unit) * self._low + (1 + unit) * self._high
        return np.clip(np.where(self._finite, wide, actions), *self._bounds)

    def to_unit(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Actions [n, ...] clipped to the bounds, and what would have been rescaled to them."""
        clipped = np.clip(actions, *self._bounds)
        unit = (clipped.astype(np.float64) / 2 - self._low) / self._half * 2 - 1
        return clipped, np.where(self._finite, unit, actions)


def _no_floats(actions: np.ndarray, path: str) -> PolicyError:
    return PolicyError(
        explain(
            expected="floats, because what is stored under action_map='rescale' is in [-1, 1]",
            found=f"dtype {actions.dtype}",
            where=f"policy output at '{path}'",
            fix="return floats, or use action_map='clip'",
        )
    )


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
