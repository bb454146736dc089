"""Attributes, methods and frames of environments, by lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from outrider.errors import ConfigError, explain
from outrider.vector.requests import lane_values

if TYPE_CHECKING:
    from outrider.vector.lanes import Lanes

__all__ = ["Attributes"]

NOT_CALLED = ("reset", "step", "close")
"""What would change where a lane stands without anybody knowing; Gymnasium's AsyncVectorEnv refuses the same."""


class Attributes:
    """The environments of some lanes, in the order in which they were named: `VecEnv.at` returns it.

    Its methods are those of a Gymnasium vector environment, which ask all lanes.
    """

    def __init__(self, envs: Lanes, lanes: Sequence[int]) -> None:
        self._envs = envs
        self._lanes = lanes

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method, or get an attribute, of each environment; the arguments are the same for all.

        Raises:
            ConfigError: `name` is "reset", "step" or "close".
            EnvironmentFailure: an environment has no such attribute, or the method raised. Nothing is closed. A worker
                that dies or hangs in it ends all environments, unless `on_failure` says otherwise.
        """
        if name in NOT_CALLED:
            raise ConfigError(
                explain(
                    expected=f"a method other than {', '.join(NOT_CALLED)}",
                    found=repr(name),
                    where="call()",
                    fix=f"use {name}() of the vector environment",
                )
            )
        return self._ask("call", name, [(args, kwargs)] * len(self._lanes))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Get an attribute of each environment.

        Raises:
            EnvironmentFailure: an environment does not have it. Nothing is closed.
        """
        return self._ask("get", name, [()] * len(self._lanes))

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment, to one value for all or to a list or tuple with one for each.

        Raises:
            ConfigError: not one for each.
        """
        if not isinstance(values, (list, tuple)):
            values = [values] * len(self._lanes)
        lane_values(values, len(self._lanes), "set_attr")
        self._ask("set", name, [(value,) for value in values])

    def render(self) -> tuple[Any, ...]:
        """Return the frame of each environment; what that is depends on the render mode.

        Raises:
            ConfigError: the environments were made without a render mode.
        """
        self._envs.check_open()
        if self._envs.render_mode is None:
            raise ConfigError(
                explain(
                    expected="environments that were made with a render mode",
                    found="render_mode=None",
                    where="render()",
                    fix="make them with one, e.g. make_vec(lambda: gymnasium.make(name, render_mode='rgb_array'), n)",
                )
            )
        return self._ask("render", "", [()] * len(self._lanes))

    def _ask(self, operation: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        self._envs.check_idle(operation)
        return tuple(self._envs.driver.call(self._lanes, operation, name, arguments))
