"""What ENV and --policy name: a plan of environments, and something that makes the policy wherever it is needed."""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gymnasium

from outrider.cli.files import FileObject
from outrider.errors import ConfigError, explain
from outrider.policies.base import Policy
from outrider.policies.function import as_policy
from outrider.policies.random import RandomPolicy
from outrider.seeding import seed_globals
from outrider.vector.plan import Envs

__all__ = ["FileEnv", "FilePolicy", "PolicySource", "plan_of", "policy_of"]


@dataclass(frozen=True)
class FileEnv:
    """A factory of environments: what a name in a file makes, in whichever process."""

    source: FileObject

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """Make an environment; `Envs` checks that it is one."""
        made: gymnasium.Env[Any, Any] = self.source.load()()
        return made


@dataclass(frozen=True)
class FilePolicy:
    """Makes the policy that a name in a file stands for, in whichever process.

    An `outrider.Policy` is itself. A class, or a callable without parameters, is a factory: it is called, once in each
    process, with the global generators seeded alike, and what it returns is the policy. Any other callable is a
    function of the batch of observations.
    """

    source: FileObject
    seed: int = 0

    def __call__(self) -> Policy:
        """Make the policy.

        Raises:
            ConfigError: the object is no policy, or makes none.
        """
        found = self.source.load()
        if not isinstance(found, Policy) and _is_factory(found):
            seed_globals(self.seed)
            found = found()
        try:
            return as_policy(found)
        except ConfigError as error:
            msg = f"{self.source.label}: {error}"
            raise ConfigError(msg) from error


@dataclass(frozen=True)
class PolicySource:
    """A policy before there are environments.

    Attributes:
        name: `file.py:name`, or "RandomPolicy".
        file: None for random actions.
    """

    name: str
    file: FilePolicy | None

    def maker(self, action_space: gymnasium.Space[Any], seed: int) -> Callable[[], Policy]:
        """What makes the policy for environments of this action space in a run of this seed; workers can be sent it."""
        return partial(RandomPolicy, action_space) if self.file is None else replace(self.file, seed=seed)


def plan_of(env: str, num_envs: int, max_episode_steps: int | None = None) -> Envs:
    """The plan for `num_envs` environments of ENV; imports its file or module, makes no environment.

    Raises:
        ConfigError: an unknown id, a bad file, or a name that is no factory.
    """
    if not _names_a_file(env):
        return _registered(env, num_envs, max_episode_steps)
    source = FileObject.parse(env, "ENV")
    found = source.load()
    if isinstance(found, gymnasium.Env) or not callable(found) or _required(found):
        needed = f", which needs the arguments {', '.join(_required(found))}" if callable(found) else ""
        raise ConfigError(
            explain(
                expected="a callable without required parameters that returns a new environment",
                found=f"an object of type {type(found).__name__}{needed}",
                where=source.label,
                fix="name an Env class, or a function such as `def make(): return MyEnv(size=8)`",
            )
        )
    plan = Envs(FileEnv(source), num_envs, max_episode_steps=max_episode_steps)
    plan.name = source.label
    return plan


def _registered(env: str, num_envs: int, max_episode_steps: int | None) -> Envs:
    """The plan for an id; for one that an installed package would register, the error says how to write it."""
    try:
        return Envs(env, num_envs, max_episode_steps=max_episode_steps)
    except ConfigError as error:
        package = re.split(r"[-/]", env)[0].lower()
        if ":" in env or not package.isidentifier() or importlib.util.find_spec(package) is None:
            raise
        msg = f"{error}: {package}:{env}"
        raise ConfigError(msg) from error


def policy_of(policy: str | None) -> PolicySource:
    """What --policy names; imports its file, makes no policy.

    Raises:
        ConfigError: a bad file or name.
    """
    if policy is None:
        return PolicySource("RandomPolicy", None)
    source = FileObject.parse(policy, "--policy")
    source.load()
    return PolicySource(source.label, FilePolicy(source))


def _names_a_file(env: str) -> bool:
    return ".py:" in env or env.endswith(".py")


def _is_factory(found: Any) -> bool:
    """Whether it is a class, or a callable without parameters."""
    if isinstance(found, type):
        return True
    try:
        return not inspect.signature(found).parameters
    except (TypeError, ValueError):
        return False  # not callable, or written in C without a signature: NumPy's functions take arguments


def _required(found: Any) -> list[str]:
    """The names of the parameters that must be given."""
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return []
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one.name for one in parameters if one.default is one.empty and one.kind not in variable]
