"""Noise of continuous actions: what is added in each step, for a whole batch of lanes at once."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from outrider.errors import ConfigError, explain
from outrider.kernels import normals
from outrider.policies.base import ContextLike
from outrider.policies.schedules import Schedule, Scheduled

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["GaussianNoise", "Noise", "NoiseSource", "OrnsteinUhlenbeckNoise"]


class NoiseSource(ABC):
    """Draws noise of unit scale. It may remember what makes the next draw cheaper, but nothing that changes it."""

    @abstractmethod
    def draw(self, key: np.uint64, ctx: ContextLike, k: int) -> NDArray[np.float64]:
        """Return noise [n, k] for the rows of `ctx`: a pure function of key, lane, its step and that of its episode."""


class Noise(ABC):
    """A kind of noise, for `ActionNoise`."""

    @property
    @abstractmethod
    def scale(self) -> Scheduled:
        """What noise of unit scale is multiplied by."""

    @abstractmethod
    def source(self) -> NoiseSource:
        """Return a new source of noise of unit scale."""


@final
@dataclass(frozen=True)
class GaussianNoise(Noise):
    """Normal noise, independent from step to step, lane to lane and element to element; its mean is 0.

    Args:
        std: standard deviation, in the scale of the policy's actions; or a `Schedule` of it.

    Raises:
        ConfigError: it is no finite number of 0 or more, nor a function.

    Example:
        >>> GaussianNoise(0.1)
        GaussianNoise(std=0.1)
    """

    std: float | Schedule

    def __post_init__(self) -> None:
        Scheduled(self.std, "GaussianNoise(std)")

    @property
    def scale(self) -> Scheduled:
        """The standard deviation."""
        return Scheduled(self.std, "GaussianNoise(std)")

    def source(self) -> NoiseSource:
        """Return a source of standard normal noise."""
        return _Gaussian()


@final
@dataclass(frozen=True)
class OrnsteinUhlenbeckNoise(Noise):
    """Noise that drifts back to 0 (Ornstein-Uhlenbeck): what is added in neighbouring steps is alike.

    x[0] = 0 at the start of each episode, x[t+1] = x[t] - theta x[t] dt + sigma sqrt(dt) N(0, 1), and step t of the
    episode gets x[t+1] (Uhlenbeck and Ornstein, "On the theory of the Brownian motion", Physical Review 36, 1930, in
    steps of Euler and Maruyama; theta and sigma as in Lillicrap et al., "Continuous control with deep reinforcement
    learning", ICLR 2016). In the long run its standard deviation is near sigma / sqrt(2 theta), and it forgets within
    1 / (theta dt) steps. Each lane and element has its own; a schedule of sigma scales the whole process, x of earlier
    steps included.

    Args:
        sigma: 0 or more, in the scale of the policy's actions; or a `Schedule` of it.
        theta: how strongly it drifts back, per unit of time; more than 0.
        dt: time of a step; more than 0, and theta * dt at most 1.

    Raises:
        ConfigError: a number is out of range.

    Example:
        >>> OrnsteinUhlenbeckNoise(sigma=0.2)
        OrnsteinUhlenbeckNoise(sigma=0.2, theta=0.15, dt=0.01)
    """

    sigma: float | Schedule
    theta: float = 0.15
    dt: float = 0.01

    def __post_init__(self) -> None:
        Scheduled(self.sigma, "OrnsteinUhlenbeckNoise(sigma)")
        for name, value in (("theta", self.theta), ("dt", self.dt)):
            Scheduled(value, f"OrnsteinUhlenbeckNoise({name})")
        if callable(self.theta) or callable(self.dt) or not 0 < self.theta * self.dt <= 1:
            raise ConfigError(
                explain(
                    expected="numbers of more than 0, and theta * dt at most 1, beyond which it overshoots",
                    found=f"theta={self.theta!r}, dt={self.dt!r}",
                    where="OrnsteinUhlenbeckNoise(theta, dt)",
                    fix="pass e.g. theta=0.15, dt=0.01",
                )
            )

    @property
    def scale(self) -> Scheduled:
        """The sigma of the process."""
        return Scheduled(self.sigma, "OrnsteinUhlenbeckNoise(sigma)")

    def source(self) -> NoiseSource:
        """Return a source of the process with a sigma of 1."""
        return _OrnsteinUhlenbeck(1 - self.theta * self.dt, math.sqrt(self.dt))


@final
class _Gaussian(NoiseSource):
    def draw(self, key: np.uint64, ctx: ContextLike, k: int) -> NDArray[np.float64]:
        noise: NDArray[np.float64] = normals(key, ctx.env_id, ctx.lane_step, k)
        return noise


@final
class _OrnsteinUhlenbeck(NoiseSource):
    """x[t+1] = decay x[t] + spread N(0, 1), where the normal numbers are functions of lane and lane step.

    So x is a function of key, lane, start of the episode and lane step. What is remembered of each lane is only where
    the sum was last left; where that is of another episode, run or policy's turn, it is taken from the start again.
    """

    def __init__(self, decay: float, spread: float) -> None:
        self._decay, self._spread = decay, spread
        self._of: tuple[np.uint64, int] | None = None
        # By lane: the lane step at which the episode began, and behind the last step of x; 0 where there is none.
        self._began = self._next = np.zeros(0, np.int64)
        self._x = np.zeros((0, 0))

    def draw(self, key: np.uint64, ctx: ContextLike, k: int) -> NDArray[np.float64]:
        lanes, steps = ctx.env_id, ctx.lane_step
        self._make_room((key, k), int(lanes.max()) + 1)
        began, known, x = steps - ctx.step, self._next[lanes], self._x[lanes]
        new = (self._began[lanes] != began) | (known > steps + 1) | (known <= began)
        known[new], x[new] = began[new], 0.0
        missing = steps + 1 - known
        for ago in range(int(missing.max()) - 1, -1, -1):
            due = missing > ago
            drawn = normals(key, lanes[due], steps[due] - ago, k)
            x[due] = self._decay * x[due] + self._spread * drawn
        self._began[lanes], self._next[lanes], self._x[lanes] = began, steps + 1, x
        return x

    def _make_room(self, of: tuple[np.uint64, int], lanes: int) -> None:
        """Remember nothing of another stream; have a place for each lane."""
        if self._of != of:
            self._of = of
            self._began = self._next = np.zeros(0, np.int64)
            self._x = np.zeros((0, of[1]))
        more = lanes - len(self._next)
        if more > 0:
            self._began = np.append(self._began, np.zeros(more, np.int64))
            self._next = np.append(self._next, np.zeros(more, np.int64))
            self._x = np.append(self._x, np.zeros((more, of[1])), axis=0)
