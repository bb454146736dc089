"""Batched environments that somebody else has made become those of a `VecEnv`."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from gymnasium.vector.utils import batch_space

from outrider.vector.batch_driver import BatchDriver
from outrider.vector.batched import batch_size, is_pool, refusal
from outrider.vector.envpool import PoolDriver
from outrider.vector.foreign import ForeignDriver

if TYPE_CHECKING:
    from gymnasium.vector import AutoresetMode

__all__ = ["take_over"]

_taken: weakref.WeakSet[Any] = weakref.WeakSet()
"""Sources that have a driver: two of them would step the same environments."""


def take_over(env: Any, info_keys: tuple[str, ...], mode: AutoresetMode | None) -> tuple[BatchDriver, AutoresetMode]:
    """Return a driver of a batch of environments, which closes it when it is closed itself, and its autoreset mode.

    Args:
        env: a `gymnasium.vector.VectorEnv` or an EnvPool pool.
        info_keys: keys of infos that are wanted.
        mode: the mode that it has to have; None: any.

    Raises:
        ConfigError: it cannot be taken, or was taken before. It stays as it is then.
    """
    count = batch_size(env)
    base = env if is_pool(env) else env.unwrapped
    if base in _taken:
        raise refusal(
            "a vector environment that nobody else steps",
            f"an instance of {type(env).__name__} that was given to make_vec before",
            "env",
            "use the VecEnv that was made of it, or make another one",
        )
    members = getattr(base, "envs", ())
    if len({id(getattr(member, "unwrapped", member)) for member in members}) < len(members):
        raise refusal("a new environment for each lane", "one instance for several", "env", "make one for each")
    if getattr(base, "observation_mode", "same") != "same":
        _check_observations(env, count)
    driver: PoolDriver | ForeignDriver
    driver = PoolDriver(env, count, info_keys) if is_pool(env) else ForeignDriver(env, count, info_keys)
    own = driver.autoreset_mode
    if mode not in (None, own):
        fix = "leave autoreset_mode out, or make the source in that mode"
        raise refusal(f"{own}, the mode of {type(env).__name__}", mode, "autoreset_mode", fix)
    _taken.add(base)
    return driver, own


def _check_observations(env: Any, count: int) -> None:
    """Refuse lanes of different observation spaces, as those of environments that are made here are refused.

    Raises:
        ConfigError: the batched space is not one of `count` equal ones.
    """
    one = env.single_observation_space
    if env.observation_space != batch_space(one, count):
        raise refusal(
            f"one observation space for all lanes, of which {one!r} would be {batch_space(one, count)!r}",
            repr(env.observation_space),
            "observation space",
            "make it with observation_mode=(batched space, single space) of bounds that hold for all, or wrap the "
            "environments so that they declare the same space",
        )
