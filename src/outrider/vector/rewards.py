"""Vector rewards: who declares them, and how what an environment returned becomes numbers of the declared shape.

Environments declare them as those of MO-Gymnasium do: `reward_space`, a Box of shape (k,).
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorWrapper
from gymnasium.wrappers import PassiveEnvChecker

from outrider.errors import ConfigError, SpecError, explain
from outrider.spec import LeafSpec

__all__ = ["as_reward", "declared_rewards", "expect_vectors", "reward_spec"]

NAME = "reward_space"


def declared_rewards(env: Any, where: str) -> spaces.Box | None:
    """The space of the vector rewards of an environment or a batch; None: its rewards are numbers.

    The outermost wrapper that has a `reward_space` of its own decides, else the environment itself. A wrapper that
    makes one number of the vector sets its `reward_space` to None; `LinearReward` of MO-Gymnasium need not.

    Raises:
        ConfigError: what is declared is neither a Box of shape (k,) nor of shape ().

    Example:
        >>> env = gymnasium.make("CartPole-v1")
        >>> env.unwrapped.reward_space = spaces.Box(-1.0, 1.0, (2,))
        >>> declared_rewards(env, "lane 0")
        Box(-1.0, 1.0, (2,), float32)
        >>> env.reward_space = None
        >>> declared_rewards(env, "lane 0") is None
        True
    """
    space = _declaration(env)
    shape = getattr(space, "shape", None)
    if space is None or shape == ():
        return None
    if not isinstance(space, spaces.Box) or len(space.shape) != 1 or not space.shape[0]:
        raise ConfigError(
            explain(
                expected="a Box of shape (k,), one number for each objective",
                found=repr(space),
                where=f"{NAME} of {where}",
                fix="declare such a space, or none where rewards are numbers",
            )
        )
    return space


def _declaration(env: Any) -> Any:
    while isinstance(env, (gymnasium.Wrapper, VectorWrapper)):
        if NAME in vars(env) or any(NAME in vars(kind) for kind in type(env).__mro__):
            return getattr(env, NAME)
        if type(env).__name__ == "LinearReward" and type(env).__module__.startswith("mo_gymnasium."):
            return None
        env = env.env
    found = getattr(env, NAME, None)
    return getattr(getattr(env, "unwrapped", None), NAME, None) if found is None else found


def expect_vectors(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Return an environment that `gymnasium.make` has made; its checker does not warn of rewards that are declared."""
    layer: Any = env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, PassiveEnvChecker) and getattr(layer.unwrapped, NAME, None) is not None:
            layer.checked_step = True
        layer = layer.env
    return env


def reward_spec(space: spaces.Box | None) -> LeafSpec:
    """What a row holds of the rewards that `declared_rewards` has found."""
    return LeafSpec(() if space is None else space.shape, np.dtype(np.float64))


def as_reward(reward: Any, shape: tuple[int, ...]) -> Any:
    """A reward as a float, or as an array of the declared shape (k,), which may be the environment's own.

    Python and NumPy numbers and arrays of one element are numbers.

    Raises:
        SpecError: it is none, or has another shape.
    """
    if not shape and isinstance(reward, (float, int)):
        return float(reward)
    array = np.asarray(reward)
    is_one = array.shape == shape if shape else array.size == 1
    if not is_one or array.dtype.kind not in "fiub":
        size = f", shape {array.shape}, dtype {array.dtype}" if isinstance(reward, np.ndarray) else ""
        if shape:
            expected = f"shape {shape} of numbers, as {NAME} declares"
            fix = f"return what is declared; set {NAME} = None in the wrapper that makes one number of it"
        else:
            expected, fix = "one number", f"return a scalar reward, or declare vectors by {NAME}, a Box of shape (k,)"
        raise SpecError(
            explain(expected=expected, found=f"{type(reward).__name__} {reward!r:.60}{size}", where="reward", fix=fix)
        )
    return array if shape else float(array.reshape(-1)[0])
