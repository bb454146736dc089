"""Values of the observations of a rollout: each is evaluated once, by one call of the critic."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from outrider import tree
from outrider.errors import ConfigError, SpecError, explain
from outrider.records import arrays, blind
from outrider.records.arrays import Array
from outrider.tree import Tree

if TYPE_CHECKING:
    from outrider.records.rollout import Rollout

__all__ = ["evaluated"]


def evaluated(rollout: Rollout, critic: Any, where: str, state_axis: int = 0) -> tuple[Array, Array]:
    """The values [T, N] of the observations acted upon, and of the true ones after the steps; see `next_values`.

    Args:
        rollout: values in its extras are taken from there.
        critic: for the other observations.
        where: names the caller in errors.
        state_axis: the axis of the critic's states that is the batch.
    """
    if not callable(critic):
        found, fix = f"an object of type {type(critic).__name__}", "pass a module, or a function of observations"
        raise ConfigError(explain(expected="something to call", found=found, where=where, fix=fix))
    blind.check_known(rollout, where)
    length, lanes = rollout.length, rollout.num_envs
    stored = _stored(rollout, where)
    begin = 0 if stored is None else length
    index = arrays.to_numpy(rollout.final_index)
    known = np.arange(len(index))
    if rollout.blind is not None:
        # Those that are blind terminated: nobody bootstraps there, and the critic does not get what is no observation.
        known = known[~arrays.to_numpy(rollout.blind).reshape(-1)[index]]
    ends, known = arrays.like(rollout.reward, index), arrays.like(rollout.reward, known)
    inputs = [_unknown(rollout.obs, rollout.final_obs, begin, known)]
    if rollout.state is not None:
        inputs.append(arrays.moved(_unknown(rollout.state, rollout.final_state, begin, known), state_axis, where))
    rows = (length + 1 - begin) * lanes
    tails = {(), tuple(rollout.reward.shape[2:])} if stored is None else {tuple(stored.shape[2:])}
    found = _values(
        _call(critic, inputs, where), (rows + len(known),), tails, rollout.reward, f"{where}: the critic's result"
    )
    if stored is not None:
        found = arrays.cast(found, stored.dtype)
    grid = found[:rows].reshape((length + 1 - begin, lanes, *found.shape[1:]))
    if stored is not None:
        grid = arrays.concatenate([stored, grid])
    following = arrays.copy(grid[1:])
    following[ends // lanes, ends % lanes] = 0
    following[ends[known] // lanes, ends[known] % lanes] = found[rows:]
    return grid[:length], following


def _unknown(columns: Tree, final: Tree, begin: int, known: Array) -> Tree:
    """Copies of the rows from time `begin` on, [R, ...], with the `known` ones of the side table behind them."""

    def rows(leaf: Array, last: Array) -> Array:
        part = leaf[begin:]
        flat = part.reshape((part.shape[0] * part.shape[1], *part.shape[2:]))
        return arrays.concatenate([flat, arrays.gather(last, known)])

    return tree.map(rows, columns, final)


def _stored(rollout: Rollout, where: str) -> Array | None:
    """The column "value" without its gradient, or None."""
    if "value" not in rollout.extras:
        return None
    leading, tails = (rollout.length, rollout.num_envs), {(), tuple(rollout.reward.shape[2:])}
    place = f"{where}: the column 'value' of extras"
    found = _values(rollout.extras["value"], leading, tails, rollout.reward, place)
    return found.detach() if hasattr(found, "detach") else found


def _call(critic: Callable[..., Any], inputs: list[Tree], where: str) -> Any:
    """Call the critic, without gradients if torch may be behind it."""
    if "torch" not in sys.modules:
        return critic(*inputs)
    return importlib.import_module("outrider.torch.critic").call(critic, inputs, where)


def _values(found: Any, leading: tuple[int, ...], tails: set[tuple[int, ...]], reward: Array, where: str) -> Array:
    """`found` as values of the array kind of the reward, of one of the shapes (*leading, *tail).

    A last axis of length 1 that is none of the tails is removed: networks often have it.
    """
    if isinstance(found, (dict, tuple)) or found is None:
        keys = f" with keys {sorted(found)}" if isinstance(found, dict) else ""
        fix = "choose the values from it: lambda obs: model(obs)['value']"
        raise SpecError(
            explain(expected="one array of values", found=f"a {type(found).__name__}{keys}", where=where, fix=fix)
        )
    values = arrays.like(reward, found)
    if tuple(values.shape) == (*leading, 1) and (1,) not in tails:
        values = values[..., 0]
    wanted = [(*leading, *tail) for tail in sorted(tails)]
    if tuple(values.shape) not in wanted:
        expected, fix = f"shape {' or '.join(map(str, wanted))}", "return one value for each observation"
        raise SpecError(explain(expected=expected, found=f"shape {tuple(values.shape)}", where=where, fix=fix))
    dtype = str(values.dtype).removeprefix("torch.")
    if "float" not in dtype:
        fix = "return them as float32"
        raise SpecError(explain(expected="values of floating point", found=f"dtype {dtype}", where=where, fix=fix))
    return values
