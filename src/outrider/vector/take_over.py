"""Batched environments that somebody else has made become those of a `VecEnv`."""

from __future__ import annotations

import weakref
from typing import Any

from outrider.vector.batch_driver import BatchDriver
from outrider.vector.batched import batch_size, is_pool, refusal
from outrider.vector.envpool import PoolDriver
from outrider.vector.foreign import ForeignDriver

__all__ = ["take_over"]

_taken: weakref.WeakSet[Any] = weakref.WeakSet()
"""Sources that have a driver: two of them would step the same environments."""


def take_over(env: Any, info_keys: tuple[str, ...]) -> BatchDriver:
    """Return a driver of a batch of environments, which closes it when it is closed itself.

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
    driver: BatchDriver = (PoolDriver if is_pool(env) else ForeignDriver)(env, count, info_keys)
    _taken.add(base)
    return driver
