"""A `dm_env.Environment` as a `gymnasium.Env`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces

from outrider.errors import ConfigError, SpecError, explain
from outrider.vector.batched import is_batched

if TYPE_CHECKING:
    import dm_env

__all__ = ["DmEnv", "from_dm_env"]

Seeder: TypeAlias = "Callable[[dm_env.Environment, int], None]"

Convert: TypeAlias = Callable[[Any], Any]

TEXT_LENGTH = 1 << 20
"""What a string of a `StringArray` may be long: its spec sets no limit, a Text space needs one."""


def from_dm_env(environment: dm_env.Environment, *, seeder: Seeder | None = None) -> DmEnv:
    """Let a `dm_env.Environment` be used where a Gymnasium environment is expected.

    Args:
        environment: a single one, taken over: closing the result closes it.
        seeder: called with the environment and a seed before a reset that has one. dm_env itself knows no seeds:
            without a seeder they have no effect, and a warning says so.

    Raises:
        ConfigError: it is no dm_env environment, has several discounts, or a spec that no space can express.

    Example:
        >>> import dm_env
        >>> class Coin(dm_env.Environment):
        ...     def reset(self):
        ...         return dm_env.restart(np.zeros(1))
        ...
        ...     def step(self, action):
        ...         return dm_env.termination(1.0, np.ones(1))
        ...
        ...     def observation_spec(self):
        ...         return dm_env.specs.Array((1,), np.float64)
        ...
        ...     def action_spec(self):
        ...         return dm_env.specs.DiscreteArray(2)
        >>> env = from_dm_env(Coin())
        >>> env.action_space, env.reset()
        (Discrete(2), (array([0.]), {}))
        >>> env.step(1)
        (array([1.]), 1.0, True, False, {'discount': 0.0})
    """
    return DmEnv(environment, seeder)


class DmEnv(gymnasium.Env[Any, Any]):
    """What `from_dm_env` returns.

    - A last time step with discount 0 is terminated, one with a discount above 0 truncated. A discount of 0 in
      mid-sequence ends nothing; each step's discount is in `info["discount"]`.
    - The reward of a first time step, None, is nobody's; a reward of None elsewhere is refused. A `reward_spec()` of
      shape (k,) declares vector rewards, in `reward_space`.
    - Specs become spaces: BoundedArray and Array Box (of bool: MultiBinary), DiscreteArray Discrete, StringArray Text;
      dicts Dict, lists and tuples Tuple.

    Attributes:
        environment: what was wrapped.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - it is Gymnasium's attribute, a class variable there

    def __init__(self, environment: dm_env.Environment, seeder: Seeder | None = None) -> None:
        import dm_env  # an extra

        if not isinstance(environment, dm_env.Environment) or is_batched(environment):
            raise ConfigError(
                explain(
                    expected="a single dm_env.Environment",
                    found=type(environment).__name__,
                    where="from_dm_env(environment)",
                    fix='make one with its own class; make pools of EnvPool with env_type="gymnasium"',
                )
            )
        self.environment = environment
        self.observation_space, self._observation = _from_spec(environment.observation_spec(), "observation_spec()")
        self.action_space, _ = _from_spec(environment.action_spec(), "action_spec()")
        self._action = _action_converter(environment.action_spec())
        discount = environment.discount_spec()
        if getattr(discount, "shape", None) != ():
            raise _unknown(discount, "discount_spec()", "one discount")
        self.reward_space = _rewards(environment.reward_spec())
        self._seeder = seeder
        self._running = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Raises:
            ConfigError: there are options, of which dm_env knows none.
        """
        super().reset(seed=seed)
        if options:
            raise ConfigError(
                explain(
                    expected="no options", found=repr(options), where="reset of a dm_env environment", fix="drop them"
                )
            )
        if seed is not None:
            self._seed(seed)
        step = self.environment.reset()
        self._running = True
        return self._observation(step.observation), {}

    def _seed(self, seed: int) -> None:
        if self._seeder is not None:
            self._seeder(self.environment, seed)
            return
        warnings.warn(
            "dm_env environments have no seeds: from_dm_env(environment, seeder=...) says how to give them one",
            stacklevel=3,
        )

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step.

        Raises:
            gymnasium.error.ResetNeeded: there was no reset before, or the episode has ended.
            SpecError: the environment began an episode by itself, or gave no reward or no discount.
        """
        if not self._running:
            msg = "call reset() before step(), and after an end"
            raise gymnasium.error.ResetNeeded(msg)
        step = self.environment.step(self._action(action))
        if step.first() or step.reward is None or step.discount is None:
            raise SpecError(
                explain(
                    expected="a middle or last time step with a reward and a discount",
                    found=f"{step.step_type!r}, reward {step.reward!r}, discount {step.discount!r}",
                    where="what step() returned",
                    fix="return dm_env.transition, termination or truncation",
                )
            )
        last, discount = step.last(), float(step.discount)
        self._running = not last
        terminated, truncated = last and discount == 0, last and discount > 0
        return self._observation(step.observation), step.reward, terminated, truncated, {"discount": discount}

    def close(self) -> None:
        """Close the environment."""
        self.environment.close()


def _from_spec(spec: Any, path: str) -> tuple[spaces.Space[Any], Convert]:
    """The space of a nested spec, and what makes members of it from values of the spec."""
    if isinstance(spec, Mapping):
        parts = {key: _from_spec(part, f"{path}/{key}") for key, part in spec.items()}
        return spaces.Dict({key: space for key, (space, _) in parts.items()}), lambda value: {
            key: convert(value[key]) for key, (_, convert) in parts.items()
        }
    if isinstance(spec, (list, tuple)):
        pairs = [_from_spec(part, f"{path}/{index}") for index, part in enumerate(spec)]
        return spaces.Tuple([space for space, _ in pairs]), lambda value: tuple(
            [convert(part) for (_, convert), part in zip(pairs, value, strict=True)]
        )
    return _from_array(spec, path)


def _from_array(spec: Any, path: str) -> tuple[spaces.Space[Any], Convert]:
    from dm_env import specs  # an extra

    if isinstance(spec, specs.StringArray) and spec.shape == ():
        return spaces.Text(TEXT_LENGTH), str
    if not isinstance(spec, specs.Array) or isinstance(spec, specs.StringArray):
        raise _unknown(spec, path, "arrays of numbers, bools or one string, in dicts, lists and tuples")
    shape, dtype = tuple(spec.shape), np.dtype(spec.dtype)
    if isinstance(spec, specs.DiscreteArray):
        return spaces.Discrete(int(spec.num_values)), _as(dtype)
    if dtype == np.bool_:
        return spaces.MultiBinary(shape), lambda value: np.asarray(value).astype(np.int8)
    if dtype.kind not in "iuf":
        raise _unknown(spec, path, "arrays of numbers, bools or one string, in dicts, lists and tuples")
    low, high = _limits(spec, dtype)
    return spaces.Box(low, high, shape, dtype.type), _as(dtype)


def _rewards(spec: Any) -> spaces.Box | None:
    """The space of vector rewards; None for all others, of which each is looked at when it comes."""
    if len(getattr(spec, "shape", ())) != 1 or np.dtype(spec.dtype).kind not in "iuf":
        return None
    low, high = _limits(spec, np.dtype(np.float64))
    return spaces.Box(low, high, tuple(spec.shape), np.float64)


def _limits(spec: Any, dtype: np.dtype[Any]) -> tuple[np.ndarray, np.ndarray]:
    from dm_env import specs  # an extra

    least, most = (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.kind in "iu" else (-np.inf, np.inf)
    if isinstance(spec, specs.BoundedArray):
        least, most = spec.minimum, spec.maximum
    low, high = (np.array(np.broadcast_to(np.asarray(limit, dtype), spec.shape)) for limit in (least, most))
    return low, high


def _as(dtype: np.dtype[Any]) -> Convert:
    """Make arrays of plain numbers; arrays stay as they are, to be checked where they are stored."""
    return lambda value: value if isinstance(value, (np.ndarray, np.generic)) else np.asarray(value, dtype)


def _action_converter(spec: Any) -> Convert:
    """What makes values of a nested spec from members of its space."""
    if isinstance(spec, Mapping):
        parts = {key: _action_converter(part) for key, part in spec.items()}
        return lambda value: {key: convert(value[key]) for key, convert in parts.items()}
    if isinstance(spec, (list, tuple)):
        converters = [_action_converter(part) for part in spec]
        return lambda value: type(spec)([convert(part) for convert, part in zip(converters, value, strict=True)])
    return lambda value: np.asarray(value, spec.dtype)


def _unknown(spec: Any, path: str, expected: str) -> ConfigError:
    return ConfigError(
        explain(
            expected=expected,
            found=repr(spec),
            where=f"from_dm_env: {path}",
            fix="wrap the environment so that its specs are of this kind",
        )
    )
