"""Advantages of rollouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outrider.errors import ConfigError, explain
from outrider.records import Rollout, arrays, next_values
from outrider.records.arrays import Array
from outrider.returns.functions import gae

__all__ = ["advantages"]


def advantages(
    rollout: Rollout, critic: Callable[..., Any], *, gamma: float, lam: float, state_axis: int = 0
) -> dict[str, Array]:
    """Columns for a rollout: generalized advantage estimates, and what the critic is to predict.

    Truncated and cut episodes bootstrap from their true last observation, the last row from the newest one; no trace
    crosses an end, and rows that are not valid have an advantage of 0. The critic evaluates each observation once, or
    only those without a stored value: see `Rollout.next_values`. The columns are constants: no gradient flows through
    them.

    Args:
        rollout: its rewards are numbers, not vectors.
        critic: as in `Rollout.next_values`.
        gamma: the discount of a step, from 0 to 1.
        lam: lambda, from 0 (one step) to 1 (all rewards).
        state_axis: as in `Rollout.next_values`.

    Returns:
        {"advantage": [T, N], "target": [T, N]}, where target = advantage + value, in the dtype of the values; arrays of
        the kind and on the device of the rollout. See `outrider.gae`.

    Raises:
        SpecError: an episode was truncated in a row that is `blind`, or the critic returned something else than values.
        ConfigError: gamma or lam is not from 0 to 1, or the first argument is no rollout.

    Example:
        >>> import numpy as np
        >>> from outrider.records import StepSpec
        >>> from outrider.spec import LeafSpec
        >>> spec = StepSpec(obs=LeafSpec((3,), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=2)
        >>> rollout = spec.zeros(4)
        >>> rollout = rollout.with_columns(**advantages(rollout, lambda obs: obs.sum(-1), gamma=0.99, lam=0.95))
        >>> rollout.extras["advantage"].shape, rollout.extras["target"].dtype
        ((4, 2), dtype('float32'))
    """
    if not isinstance(rollout, Rollout):
        raise ConfigError(
            explain(
                expected="a Rollout, whose lanes have steps without a gap",
                found=f"a {type(rollout).__name__}",
                where="advantages(rollout, critic)",
                fix="collect with collector.rollout(length); arrays [T, N] of anything else go to outrider.gae",
            )
        )
    value, following = next_values.evaluated(rollout, critic, "advantages(rollout, critic)", state_axis)
    advantage = gae(
        rollout.reward,
        value,
        following,
        rollout.terminated,
        rollout.truncated,
        gamma=gamma,
        lam=lam,
        cut=rollout.cut,
    )
    target = advantage + value
    if not bool(rollout.valid.all()):
        advantage[arrays.index_of(advantage, ~rollout.valid)] = 0
    return {"advantage": advantage, "target": target}
