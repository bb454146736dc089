"""Numbers that may change in the course of a run: constants, and functions of the count of steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np

from outrider.errors import ConfigError, PolicyError, explain
from outrider.policies.base import ContextLike

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Schedule", "Scheduled"]

Schedule: TypeAlias = Callable[[int], float]
"""A function of the count of environment steps that the run has taken, over all of its lanes, before the decision.

For a row it is `ctx.lane_step * ctx.num_envs`: what has been taken once all lanes are as far as this one. So it is
known wherever the lane runs, and is the same on every backend and for every number of workers; where all lanes step
together it is `collector.stats.steps` before the step. Steps of a warm-up count. A run begins with its collector, and
nothing is counted in the policy: each of several collectors that share one counts its own steps."""


@final
class Scheduled:
    """A number from 0 to `most`, or a schedule of such numbers.

    Args:
        value: the number, or a `Schedule`.
        where: what errors call it.
        most: the largest allowed.

    Raises:
        ConfigError: it is neither, or the number is out of range.

    Example:
        >>> from outrider.policies.base import Context
        >>> Scheduled(lambda step: 1 - step / 10, "epsilon", most=1.0)(Context.start(2))
        1.0
    """

    def __init__(self, value: float | Schedule, where: str, most: float = math.inf) -> None:
        self._where, self._most = where, most
        self._of: Schedule | None = None
        self._constant = 0.0
        if callable(value):
            self._of = value
        elif (number := _in_range(value, most)) is None:
            fix = "pass such a number, or a function of the count of steps that returns such numbers"
            raise ConfigError(explain(expected=self._expected, found=repr(value), where=where, fix=fix))
        else:
            self._constant = number

    def __call__(self, ctx: ContextLike) -> float | NDArray[np.float64]:
        """Return the value for all rows of `ctx`, or float64 [n] where it differs.

        Raises:
            PolicyError: the schedule returned something else than a number of the range; names the step.
        """
        if self._of is None:
            return self._constant
        steps = ctx.lane_step * ctx.num_envs
        first = int(steps[0])
        if (steps == first).all():
            return self._at(first)
        distinct, rows = np.unique(steps, return_inverse=True)
        values: NDArray[np.float64] = np.array([self._at(int(step)) for step in distinct])[rows]
        return values

    def _at(self, step: int) -> float:
        assert self._of is not None, "a constant is returned before"
        value = self._of(step)
        number = _in_range(value, self._most)
        if number is None:
            fix = "let the schedule end in a constant, e.g. max(0.05, 1 - step / 10_000)"
            found = f"{value!r} at step {step}"
            raise PolicyError(explain(expected=self._expected, found=found, where=self._where, fix=fix))
        return number

    @property
    def _expected(self) -> str:
        return "a finite number of 0 or more" if math.isinf(self._most) else f"a number from 0 to {self._most:g}"


def _in_range(value: Any, most: float) -> float | None:
    """The value as a float, if it is a finite number from 0 to `most`."""
    if isinstance(value, (bool, str)):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and 0 <= number <= most else None
