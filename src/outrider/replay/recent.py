"""The newest steps, and steps of weights that are not too old."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider.replay.ring import Ring
from outrider.replay.samplers import (
    Accepts,
    Draws,
    TooFewError,
    WithoutPriorities,
    accepted,
    among,
    one_of,
)
from outrider.replay.settings import keep_whole

__all__ = ["Newest", "Stale"]

UNSEEN = np.iinfo(np.int64).min
"""In place of the newest version where none has been seen yet."""


@dataclass(frozen=True)
class Newest:
    """The newest steps that the view can begin with, newest first; nothing is drawn by chance.

    What is new is decided lane by lane, by how many steps of the lane have come since: first the newest step of each
    lane, in the order of the lanes, then the second newest of each, and so on. A lane that has no more is passed over.

    Example:
        >>> Newest()
        Newest()
    """

    def start(self, ring: Ring) -> Draws:
        """See `Sampler.start`."""
        return NewestDraws(ring)


class NewestDraws(WithoutPriorities):
    """Draws of `Newest`."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._lanes = np.arange(ring.num_envs)

    def draw(self, count: int, rng: np.random.Generator, accepts: Accepts | None) -> tuple[np.ndarray, np.ndarray]:
        """See `Draws.draw`."""
        ring = self._ring
        deepest = int((ring.heads - ring.tails).max())
        found: list[np.ndarray] = []
        have, age, ages = 0, 0, -(-count // ring.num_envs)
        while have < count and age < deepest:
            positions = ring.heads - 1 - np.arange(age, min(age + ages, deepest))[:, None]
            serials = (positions * ring.num_envs + self._lanes)[positions >= ring.tails]
            found.append(serials if accepts is None else serials[accepts(serials)])
            have += len(found[-1])
            # Twice as many each time: the whole ring takes few rounds where few steps are accepted.
            age, ages = age + ages, 2 * ages
        if have < count:
            raise TooFewError(have, count, "different steps that the view can begin with")
        return np.concatenate(found)[:count], np.ones(count)


@dataclass(frozen=True)
class Stale:
    """Every step of recent weights is equally likely, with replacement.

    Recent are those whose `version` is at most `max_lag` behind the newest one that the buffer has seen, whether steps
    of that one are still there or not.

    Attributes:
        max_lag: how many versions behind, 0 or more.

    Raises:
        ConfigError: it is not.

    Example:
        >>> Stale(max_lag=2)
        Stale(max_lag=2)
    """

    max_lag: int

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense."""
        keep_whole(self, {"max_lag": 0})

    def start(self, ring: Ring) -> Draws:
        """See `Sampler.start`."""
        return StaleDraws(ring, self.max_lag)


class StaleDraws(WithoutPriorities):
    """Draws of `Stale`.

    Every lane has a mark, before which all steps are too old. It only ever moves forward, past steps that are too old,
    so that it looks at each step once. Behind it nothing is known: versions ascend in the lanes of a collector, but not
    where somebody adds records of another run or goes back to former weights. So what is drawn from there is looked
    at, and drawn again if it is too old, which it never is where versions ascend.

    Attributes:
        newest: the newest version seen.
    """

    def __init__(self, ring: Ring, max_lag: int) -> None:
        self._ring = ring
        self._max_lag = max_lag
        self._advance = importlib.import_module("outrider.replay.kernels").advance
        self._marks = np.zeros(ring.num_envs, np.int64)
        self.newest = UNSEEN
        ring.listeners.append(self)

    def arrived(self, rows: np.ndarray) -> None:
        """See `Listener.arrived`."""
        self.newest = max(self.newest, int(self._ring.columns["version"][rows].max()))

    def left(self, rows: np.ndarray) -> None:
        """See `Listener.left`."""

    @property
    def oldest(self) -> int:
        """The oldest version that is drawn."""
        return max(self.newest - self._max_lag, UNSEEN)

    def draw(self, count: int, rng: np.random.Generator, accepts: Accepts | None) -> tuple[np.ndarray, np.ndarray]:
        """See `Draws.draw`."""
        ring, oldest = self._ring, self.oldest
        versions = ring.columns["version"]
        self._advance(self._marks, ring.tails, ring.heads, versions, oldest)
        candidates = int((ring.heads - self._marks).sum())
        if not candidates:
            raise self._none()

        def takes(serials: np.ndarray) -> np.ndarray:
            recent: np.ndarray = versions[serials % ring.rows] >= oldest
            return recent if accepts is None else recent & accepts(serials)

        def choose() -> np.ndarray:
            serials = ring.serials()
            serials = serials[versions[serials % ring.rows] >= oldest]
            if not len(serials):
                raise self._none()
            return one_of(serials if accepts is None else serials[accepts(serials)], count, rng)

        serials = accepted(lambda n: among(self._marks, ring.heads, n, rng), count, takes, choose, candidates)
        return serials, np.ones(count)

    def _none(self) -> Exception:
        if not len(self._ring):
            return TooFewError(0, 1, "steps to draw from")
        fix = f"allow a greater lag than {self._max_lag}, or collect with the present weights"
        return TooFewError(0, 1, f"steps of version {self.oldest} or later, the newest seen being {self.newest},", fix)

    def begin(self) -> None:
        """See `Draws.begin`."""
        ring = self._ring
        self.restore({"newest": int(ring.columns["version"][ring.serials() % ring.rows].max(initial=UNSEEN))})

    def state(self) -> dict[str, Any]:
        """See `Draws.state`."""
        return {"newest": self.newest}

    def restore(self, state: dict[str, Any]) -> None:
        """See `Draws.restore`."""
        self.newest = int(state["newest"])
        self._marks[:] = 0

    def check(self) -> None:
        """See `Draws.check`."""
        ring = self._ring
        serials = ring.serials()
        old = ring.columns["version"][serials % ring.rows] < self.oldest
        before = serials // ring.num_envs < self._marks[serials % ring.num_envs]
        assert old[before].all(), "a step that is not too old is before the mark"
        assert (self._marks <= ring.heads).all(), "a mark is behind the newest step"
        assert (ring.columns["version"][serials % ring.rows] <= self.newest).all(), "a newer version was not seen"
