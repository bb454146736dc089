"""Another policy in the place of a collector's own, for a while: what it decides is put in terms of that one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias, final

import numpy as np
from gymnasium import Space, spaces

from outrider import tree
from outrider.collect.actions import ActionMapName, UnitScale, first_of, in_unit_scale
from outrider.errors import PolicyError, explain
from outrider.policies.base import ActionConvention, ContextLike, Policy
from outrider.policies.outputs import OutputSchema, as_arrays
from outrider.spec import LeafSpec
from outrider.tree import Tree

__all__ = ["StandIn"]

Restated: TypeAlias = Callable[[np.ndarray], np.ndarray]
Conventions: TypeAlias = tuple[ActionConvention | None, ActionConvention | None]
"""Of the policy that decides, and of the one in whose terms that is put."""


@final
class StandIn(Policy):
    """Decides as `policy` does, and returns what `own` would have returned to have the same done.

    The environments get what they would get if `policy` were the collector's. Actions are in the convention and the
    dtypes of `own`; of the extras there are those of `own`, which `policy` has to return, too. The state of `own` is
    its initial one meanwhile. `policy` has its own state, which is the initial one when it begins.

    Args:
        policy: decides.
        own: the collector's policy.
        specs: of the output of `own`, as in `OutputSchema`.
        space: of the actions of one environment.
        action_map: of the collector.
        lanes: all that may be decided for.
    """

    def __init__(
        self,
        policy: Policy,
        own: Policy,
        specs: dict[str, Tree],
        space: Space[Any],
        action_map: ActionMapName,
        lanes: range,
    ) -> None:
        self._policy, self._own = policy, own
        self._specs = specs
        self._space = space
        self._lanes = lanes
        self._restated: dict[str, Restated] = {}
        _restate(space, "action", action_map, (policy.actions, own.actions), self._restated)
        self._schema: OutputSchema | None = None
        # Of all lanes, by index.
        self._initial: Tree = None
        self._states: list[np.ndarray] = []
        # Where each leaf of what is returned is among those of the policy's output, and what is done to it.
        self._chosen: list[tuple[int, LeafSpec, str]] = []

    def initial_state(self, n: int) -> Tree:
        """That of `own`."""
        return self._own.initial_state(n)

    def session(self) -> AbstractContextManager[Any]:
        """That of the policy which decides."""
        return self._policy.session()

    def act(self, obs: Tree, state: Tree, ctx: ContextLike) -> dict[str, Tree]:
        """See `Policy.act`; `state` is not looked at."""
        lanes = ctx.env_id
        index, n = lanes - self._lanes.start, len(lanes)
        if self._schema is None:
            self._begin()
        output = self._policy.act(obs, self._state(index, ctx.is_first), ctx)
        if self._schema is None:
            self._fix(output, n)
        assert self._schema is not None
        leaves = self._schema.leaves(output, n)
        for kept, leaf in zip(self._states, leaves[len(leaves) - len(self._states) :], strict=True):
            kept[index] = leaf
        found = [self._as_own(leaves[at], spec, path) for at, spec, path in self._chosen]
        actions = len(self._restated)
        own = {
            "action": tree.unflatten(self._specs["action"], found[:actions]),
            **tree.unflatten(self._specs["extras"], found[actions:]),
        }
        return own if self._specs["state"] is None else {**own, "state": self._own.initial_state(n)}

    def _begin(self) -> None:
        """Let every lane have the initial state of the policy."""
        count = len(self._lanes)
        state = self._policy.initial_state(count)
        self._initial = None if state is None else tree.map(np.array, as_arrays(state, count, "initial_state"))
        self._states = [leaf.copy() for leaf in tree.leaves(self._initial)]

    def _state(self, index: np.ndarray, is_first: np.ndarray) -> Tree:
        """The state of these lanes, a copy."""
        if not self._states:
            return self._initial
        begun = index[is_first]
        if len(begun):
            for kept, leaf in zip(self._states, tree.leaves(self._initial), strict=True):
                kept[begun] = leaf[begun]
        return tree.unflatten(self._initial, [kept[index] for kept in self._states])

    def _fix(self, output: dict[str, Tree], n: int) -> None:
        """Find what is to be returned in a first output."""
        state = tree.map(lambda leaf: leaf[:n], self._initial)
        schema = OutputSchema.of(output, n, self._space, state=state, convention=self._policy.actions or "env")
        places = {path: at for at, path in enumerate(schema.paths)}
        wanted = tree.items({name: self._specs[name] for name in ("action", "extras")})
        missing = [path for path, _ in wanted if path not in places]
        if missing:
            raise _differs(
                f"{', '.join(missing)}, which the collector's policy returns and the buffer has columns for",
                ", ".join(schema.paths),
                "",
                "return them as well, or leave them out of what the collector's policy returns",
            )
        self._chosen = [(places[path], spec, path) for path, spec in wanted]
        self._schema = schema

    def _as_own(self, leaf: np.ndarray, spec: LeafSpec, path: str) -> np.ndarray:
        """A leaf of the policy's output [n, ...] as a leaf of the column of that spec."""
        restate = self._restated.get(path)
        restated = leaf if restate is None else restate(leaf)
        if restated.shape[1:] != spec.shape or not np.can_cast(restated.dtype, spec.dtype, "same_kind"):
            raise _differs(
                f"[n, ...] of shape {spec.shape} and dtype {spec.dtype}, as the collector's policy returns",
                f"shape {restated.shape[1:]} and dtype {restated.dtype}",
                path,
                "return the same shape, and a dtype that casts to that one",
            )
        column = restated.astype(spec.dtype, copy=False)
        if spec.dtype.kind in "iu" and (column != restated).any():
            raise _differs(
                f"integers of {spec.dtype}, as the collector's policy returns",
                f"values from {restated.min()} to {restated.max()}",
                path,
                "let the collector's policy return a wider dtype",
            )
        return column


def _differs(expected: str, found: str, path: str, fix: str) -> PolicyError:
    where = "policy output" + (f" at '{path}'" if path else "") + " of fill(policy=...)"
    return PolicyError(explain(expected=expected, found=found, where=where, fix=fix))


def _restate(
    space: Space[Any], path: str, name: ActionMapName, conventions: Conventions, restated: dict[str, Restated]
) -> None:
    """Add what puts each leaf of an action in the terms of another convention, by path."""
    if isinstance(space, spaces.Dict):
        for key, sub in space.spaces.items():
            _restate(sub, f"{path}/{key}", name, conventions, restated)
    elif isinstance(space, spaces.Tuple):
        for index, sub in enumerate(space.spaces):
            _restate(sub, f"{path}/{index}", name, conventions, restated)
    elif isinstance(space, spaces.Box):
        restated[path] = _box(space, path, *(in_unit_scale(name, convention) for convention in conventions))
    else:
        theirs, own = (0 if convention == "index" else first_of(space) for convention in conventions)
        restated[path] = _shifted(np.asarray(own) - theirs)


def _box(space: spaces.Box, path: str, theirs: bool, own: bool) -> Restated:  # noqa: FBT001 - whether in [-1, 1]
    if theirs == own:
        return _unchanged
    scale = UnitScale(space, path)
    return scale.to_bounds if theirs else lambda actions: scale.to_unit(actions)[1]


def _unchanged(actions: np.ndarray) -> np.ndarray:
    return actions


def _shifted(offset: np.ndarray) -> Restated:
    return (lambda actions: actions.astype(np.int64) + offset) if offset.any() else _unchanged
