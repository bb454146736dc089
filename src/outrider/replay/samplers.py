"""Which steps are drawn from a buffer: whole numbers in, whole numbers out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from outrider.errors import ConfigError, OutriderError, explain
from outrider.replay.ring import Ring

__all__ = ["Accepts", "Draws", "Sampler", "Uniform", "accepted"]

Accepts: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""`accepts(serials)`: which of these steps, int64 [n], a view can begin with: bool [n]."""

ROUNDS = 8
"""How often steps are drawn again in place of those that the view cannot begin with, before all that it can begin with
are looked for."""


class Draws(Protocol):
    """A sampler at work on one ring."""

    def draw(self, count: int, rng: np.random.Generator, accepts: Accepts | None) -> tuple[np.ndarray, np.ndarray]:
        """Draw steps: serial numbers int64 [count], and their weights float64 [count].

        Raises:
            OutriderError: there are none to be drawn.
        """

    def update(self, serials: np.ndarray, priorities: np.ndarray) -> int:
        """Give steps new priorities, float64 [n]; return how many of them were not there any more."""


class Sampler(Protocol):
    """How to sample; the same one may serve several buffers."""

    def start(self, ring: Ring) -> Draws:
        """Begin to sample from `ring`."""


@dataclass(frozen=True)
class Uniform:
    """Every step that is there is equally likely, with replacement.

    Example:
        >>> Uniform()
        Uniform()
    """

    def start(self, ring: Ring) -> Draws:
        """See `Sampler.start`."""
        return UniformDraws(ring)


class UniformDraws:
    """Draws of `Uniform`."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring

    def draw(self, count: int, rng: np.random.Generator, accepts: Accepts | None) -> tuple[np.ndarray, np.ndarray]:
        """See `Draws.draw`."""
        if accepts is None:
            serials = self._propose(count, rng)
        else:
            serials = accepted(
                lambda n: self._propose(n, rng), count, accepts, lambda: self._choose(count, rng, accepts)
            )
        return serials, np.ones(count)

    def _propose(self, count: int, rng: np.random.Generator) -> np.ndarray:
        ring = self._ring
        lanes = ring.num_envs
        if ring.is_even:
            return rng.integers(ring.tails[0] * lanes, ring.heads[0] * lanes, count)
        ends = np.cumsum(ring.heads - ring.tails)
        drawn = rng.integers(0, ends[-1], count)
        lane = np.searchsorted(ends, drawn, side="right")
        return (ring.heads[lane] - ends[lane] + drawn) * lanes + lane

    def _choose(self, count: int, rng: np.random.Generator, accepts: Accepts) -> np.ndarray:
        serials = self._ring.serials()
        possible = serials[accepts(serials)]
        return possible[rng.integers(0, require(possible), count)]

    def update(self, serials: np.ndarray, priorities: np.ndarray) -> int:
        """See `Draws.update`; all steps stay equally likely."""
        raise no_priorities("Uniform()")


def accepted(
    propose: Callable[[int], np.ndarray], count: int, accepts: Accepts, choose: Callable[[], np.ndarray]
) -> np.ndarray:
    """Draw until `count` steps are accepted: the distribution is that of `propose`, given that they are.

    Args:
        propose: draws so many steps.
        count: how many are wanted.
        accepts: says which can be taken.
        choose: draws `count` steps from all that can be taken; called where few can.
    """
    found: list[np.ndarray] = []
    lacking, ask = count, count
    for _ in range(ROUNDS):
        drawn = propose(ask)
        good = drawn[accepts(drawn)][:lacking]
        found.append(good)
        lacking -= len(good)
        if not lacking:
            return np.concatenate(found)
        ask = min(2 * ask, max(64, 4 * count))
    return choose()


def require(possible: np.ndarray) -> int:
    """How many steps there are to choose from.

    Raises:
        OutriderError: none.
    """
    if not len(possible):
        raise OutriderError(
            explain(
                expected="a step that the view can begin with",
                found="none",
                where="sample",
                fix="collect more: sequences need whole episodes of their length, hindsight needs episodes that ended",
            )
        )
    return len(possible)


def no_priorities(sampler: str) -> ConfigError:
    """The error for priorities that nobody uses."""
    return ConfigError(
        explain(
            expected="a sampler with priorities",
            found=sampler,
            where="update(index, priorities)",
            fix="make the buffer with sampler=outrider.Prioritized()",
        )
    )


def whole_number(value: Any, least: int, where: str) -> int:
    """Return `value` if it is an integer of `least` or more.

    Raises:
        ConfigError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ConfigError(
            explain(expected=f"an integer of {least} or more", found=repr(value), where=where, fix="pass such a number")
        )
    return int(value)
