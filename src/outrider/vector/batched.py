"""Batched environments that somebody else has made: what is one, how many environments it has, when it resets them.

A batch is a `gymnasium.vector.VectorEnv` or an EnvPool pool. Neither is imported here but Gymnasium.
"""

from __future__ import annotations

import warnings
from typing import Any

from gymnasium.vector import AutoresetMode, VectorEnv

from outrider.errors import ConfigError, explain

__all__ = ["autoreset_mode_of", "batch_size", "is_batched", "is_pool", "refusal"]


def is_pool(env: Any) -> bool:
    """Whether it is a pool of EnvPool, of any kind; EnvPool need not be installed."""
    return all(hasattr(env, name) for name in ("async_reset", "send", "recv", "all_env_ids", "config"))


def is_batched(env: Any) -> bool:
    """Whether it is a batch of environments and not a single one, an id or a factory."""
    return isinstance(env, VectorEnv) or is_pool(env)


def batch_size(env: Any) -> int:
    """How many environments a batch has.

    Raises:
        ConfigError: it cannot be taken: ours already, closed, of a kind that is not known, or without spaces.
    """
    if hasattr(env, "send_reset"):
        raise refusal("environments to make a VecEnv of", "a VecEnv", "env", "use it as it is")
    if getattr(env, "closed", False):
        raise refusal("a vector environment that is open", "one that was closed", "env", "make a new one")
    if is_pool(env):
        return _pool_size(env)
    for name in ("num_envs", "single_observation_space", "single_action_space"):
        if getattr(env, name, None) is None:
            raise refusal(f"a vector environment with {name}", type(env).__name__, "env", f"set its {name}")
    return int(env.num_envs)


def _pool_size(pool: Any) -> int:
    if not hasattr(pool, "action_space"):
        fix = 'make it with envpool.make(..., env_type="gymnasium")'
        raise refusal('a pool of env_type="gymnasium"', type(pool).__name__, "env", fix)
    config = pool.config
    if config.get("max_num_players", 1) > 1:
        found, fix = f"max_num_players={config['max_num_players']}", "step pools of several players yourself"
        raise refusal("a pool with one player in each environment", found, "env", fix)
    return int(config["num_envs"])


def refusal(expected: str, found: object, where: str, fix: str) -> ConfigError:
    """What cannot be taken or done, said before anything is touched."""
    return ConfigError(explain(expected=expected, found=found, where=where, fix=fix))


def autoreset_mode_of(source: Any) -> tuple[AutoresetMode, bool]:
    """The mode of a vector environment, and whether it says so itself.

    One that does not is taken to reset on the next step, as Gymnasium's own wrappers take it, with a warning.

    Raises:
        ConfigError: its metadata say something else than one of the three.
    """
    declared = (source.metadata or {}).get("autoreset_mode")
    if declared is None:
        warnings.warn(
            f"{type(source).__name__} does not say in metadata['autoreset_mode'] when it resets; it is taken to do so "
            "in the step after an end (AutoresetMode.NEXT_STEP), as Gymnasium's wrappers take it. Set it to be sure.",
            stacklevel=2,
        )
        return AutoresetMode.NEXT_STEP, False
    try:
        return AutoresetMode(declared), True
    except ValueError:
        names = ", ".join(str(mode) for mode in AutoresetMode)
        raise refusal(f"one of {names}", repr(declared), "metadata['autoreset_mode']", "set one of them") from None
