"""What is to be built: `Envs` describes environments, starts nothing, and can be sent to workers."""

from __future__ import annotations

import difflib
import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from outrider.errors import ConfigError, explain
from outrider.vector.batched import batch_size, is_batched, refusal
from outrider.vector.rewards import expect_vectors

__all__ = ["EnvFactory", "EnvSource", "Envs", "as_plan"]

EnvFactory: TypeAlias = Callable[[], gymnasium.Env[Any, Any]]
EnvSource: TypeAlias = "str | EnvSpec | EnvFactory | Sequence[EnvFactory] | gymnasium.vector.VectorEnv[Any, Any, Any]"


class Envs:
    """A plan for `num_envs` environments. Nothing is started: `make_vec` does that, here or in workers.

    Args:
        env: a Gymnasium id or spec, a factory (a callable without arguments that returns a new environment), or a list
            of factories, one for each lane. A batch of environments that exists already, a `gymnasium.vector.VectorEnv`
            or an EnvPool pool, is taken as it is, by one `make_vec` and in this process.
        num_envs: how many; may be left out for a list or a batch.
        info_keys: keys of the info dicts that are wanted as columns of rollouts; all others cost nothing.
        max_episode_steps: set `truncated` after so many steps, in addition to the environment's own flags.

    Raises:
        ConfigError: an unknown id, a single environment where a factory is needed, or a bad count.

    Example:
        >>> plan = Envs("CartPole-v1", 8, max_episode_steps=100)
        >>> len(plan.factories)
        8
    """

    def __init__(
        self,
        env: EnvSource,
        num_envs: int | None = None,
        *,
        info_keys: Sequence[str] = (),
        max_episode_steps: int | None = None,
    ) -> None:
        if max_episode_steps is not None:
            check_count(max_episode_steps, "max_episode_steps")
        if isinstance(info_keys, str):
            raise ConfigError(
                explain(expected="a sequence of keys", found=repr(info_keys), where="info_keys", fix="write (key,)")
            )
        self.info_keys = tuple(info_keys)
        self.name = _name(env)
        self.batch: Any = env if is_batched(env) else None
        self._num_envs = 0
        if self.batch is not None:
            self._num_envs = _batch_size(env, num_envs, max_episode_steps)
            return
        self._factories: list[EnvFactory] = [
            factory if max_episode_steps is None else Limited(factory, max_episode_steps)
            for factory in _factories(env, num_envs)
        ]

    @property
    def factories(self) -> list[EnvFactory]:
        """What makes the environment of each lane.

        Raises:
            ConfigError: the environments exist already, in this process.
        """
        if self.batch is not None:
            raise refusal(
                "environments that can be made where they are to run",
                f"an instance of {type(self.batch).__name__}, which runs where it was made",
                "env",
                'use backend="auto", or pass a factory of single environments',
            )
        return self._factories

    @property
    def num_envs(self) -> int:
        """How many lanes there will be."""
        return self._num_envs or len(self._factories)

    def __repr__(self) -> str:
        return f"Envs({self.name!r}, {self.num_envs})"


def as_plan(env: Envs | EnvSource, num_envs: int | None) -> Envs:
    """Return `env` if it is a plan already, else the plan that it describes.

    Raises:
        ConfigError: a count was given beside a plan, which has its own.
    """
    if not isinstance(env, Envs):
        return Envs(env, num_envs)
    if num_envs is not None and num_envs != env.num_envs:
        raise ConfigError(
            explain(
                expected=f"no count, or {env.num_envs} as in the plan",
                found=num_envs,
                where="num_envs",
                fix="give the count to Envs(...) alone",
            )
        )
    return env


def check_count(count: object, where: str, least: int = 1) -> int:
    """Return `count` if it is an integer of at least `least`.

    Raises:
        ConfigError: it is not.
    """
    if isinstance(count, bool) or not hasattr(count, "__index__") or int(count.__index__()) < least:
        raise ConfigError(
            explain(expected=f"an integer of {least} or more", found=repr(count), where=where, fix="pass such a number")
        )
    return int(count.__index__())


def check_seconds(seconds: object, where: str) -> float:
    """Return `seconds` if it is a finite number above 0.

    Raises:
        ConfigError: it is not.
    """
    number = isinstance(seconds, (int, float, np.integer, np.floating)) and not isinstance(seconds, bool)
    if not number or not 0 < float(seconds) < math.inf:  # type: ignore[arg-type]  # it is a number
        raise ConfigError(
            explain(expected="seconds, a number above 0", found=repr(seconds), where=where, fix="pass such a number")
        )
    return float(seconds)  # type: ignore[arg-type]


@dataclass(frozen=True)
class FromSpec:
    """Makes an environment from its registration, which travels with it: ids registered in a script work in workers."""

    spec: EnvSpec

    def __call__(self) -> gymnasium.Env[Any, Any]:
        return expect_vectors(gymnasium.make(self.spec))


@dataclass(frozen=True)
class Limited:
    """Adds a limit of steps to what another factory makes."""

    factory: EnvFactory
    max_episode_steps: int

    def __call__(self) -> gymnasium.Env[Any, Any]:
        return gymnasium.wrappers.TimeLimit(self.factory(), self.max_episode_steps)


def _factories(env: EnvSource, num_envs: int | None) -> list[EnvFactory]:
    if isinstance(env, (list, tuple)):
        if num_envs is not None and num_envs != len(env):
            raise ConfigError(
                explain(
                    expected=f"num_envs={len(env)}, one for each factory",
                    found=num_envs,
                    where="num_envs",
                    fix="leave it out, or pass a single factory",
                )
            )
        if not env:
            msg = explain(expected="at least one factory", found="an empty list", where="env", fix="add one per lane")
            raise ConfigError(msg)
        return [_factory(one, f"env[{lane}]") for lane, one in enumerate(env)]
    factory = _factory(env, "env")
    return [factory] * check_count(num_envs, "num_envs")


def _batch_size(env: Any, num_envs: int | None, max_episode_steps: int | None) -> int:
    """How many environments a batch has, after checking that nothing else was asked of it."""
    count = batch_size(env)
    if num_envs is not None and num_envs != count:
        raise refusal(f"num_envs={count}, as it has", num_envs, "num_envs", "leave it out")
    if max_episode_steps is not None:
        fix = "set the limit where the environments are made"
        raise refusal("no limit beside environments that exist", max_episode_steps, "max_episode_steps", fix)
    return count


def _factory(env: Any, where: str) -> EnvFactory:
    if isinstance(env, str):
        return FromSpec(_find_spec(env))
    if isinstance(env, EnvSpec):
        return FromSpec(env)
    if isinstance(env, (gymnasium.Env, gymnasium.vector.VectorEnv)) or not callable(env):
        raise ConfigError(
            explain(
                expected="a Gymnasium id or a factory, a callable that returns a new environment",
                found=f"an instance of {type(env).__name__}",
                where=where,
                fix="pass e.g. `lambda: MyEnv()`: each lane needs an environment of its own, built where it runs",
            )
        )
    factory: EnvFactory = env
    return factory


def _find_spec(env_id: str) -> EnvSpec:
    module, _, name = env_id.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ImportError as error:
            msg = f"environment id {env_id!r}: the module {module!r} cannot be imported: {error}"
            raise ConfigError(msg) from error
    try:
        return gymnasium.spec(name)
    except (gymnasium.error.Error, ValueError) as error:
        near = difflib.get_close_matches(name, gymnasium.registry, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "import the package that registers it first"
        msg = f"environment id: expected one that is registered with Gymnasium, found {env_id!r} ({error}); {hint}"
        raise ConfigError(msg) from error


def _name(env: EnvSource) -> str:
    if isinstance(env, (list, tuple)):
        return _name(env[0]) if env else "nothing"
    if isinstance(env, str):
        return env
    if isinstance(env, EnvSpec):
        return env.id
    if is_batched(env):
        return getattr(getattr(env, "spec", None), "id", None) or type(env).__name__
    return getattr(env, "__qualname__", type(env).__name__)
