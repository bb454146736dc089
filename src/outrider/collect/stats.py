"""What a collector can say about what it has done."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider.records.describe import figures

__all__ = ["CollectStats", "Recorder", "mean_of"]

REMEMBERED = 10_000
"""Episodes whose returns and lengths are kept; the totals count all."""


@dataclass(frozen=True, repr=False)
class CollectStats:
    """A snapshot.

    Attributes:
        steps: environment steps taken.
        carried: of these, steps not handed out yet.
        discarded: of these, steps that `close` has discarded, or that were just being returned when an interrupt came.
        episodes: episodes that ended, terminated or truncated.
        cuts: episodes that were stopped by us; they are not in the figures below.
        returns: float64 [e], or [e, k] of vector rewards: sums of rewards of the last episodes that ended, at most
            10 000, oldest first.
        lengths: int64 [e], their lengths in steps.
        episodes_per_lane: int64 [N], of all episodes that ended.
        seconds: time spent in calls of the collector.
        policy_seconds: of this, in the policy.
        env_seconds: of this, in the environments or waiting for them.
    """

    steps: int
    carried: int
    discarded: int
    episodes: int
    cuts: int
    returns: np.ndarray
    lengths: np.ndarray
    episodes_per_lane: np.ndarray
    seconds: float
    policy_seconds: float
    env_seconds: float

    def __repr__(self) -> str:
        mean = figures(self.mean_return)
        mean = f"[{mean}]" if self.returns.ndim > 1 else mean
        return (
            f"CollectStats(steps={self.steps}, carried={self.carried}, episodes={self.episodes}, cuts={self.cuts}, "
            f"mean_return={mean}, mean_length={self.mean_length:.6g}, "
            f"steps_per_second={self.steps_per_second:.0f})"
        )

    @property
    def steps_per_second(self) -> float:
        """Speed over all calls so far; 0 before the first."""
        return self.steps / self.seconds if self.seconds else 0.0

    @property
    def store_seconds(self) -> float:
        """Time spent neither in the policy nor in the environments."""
        return max(0.0, self.seconds - self.policy_seconds - self.env_seconds)

    @property
    def mean_return(self) -> Any:
        """Mean of `returns`, a float, NaN if there are none; float64 [k] of vector rewards."""
        return mean_of(self.returns)

    @property
    def mean_length(self) -> float:
        """Mean of `lengths` in steps, NaN if there are none."""
        return float(self.lengths.mean()) if len(self.lengths) else float("nan")


def mean_of(returns: np.ndarray) -> Any:
    """Mean of returns [E], a float, or of returns [E, k] for each objective, float64 [k]; NaN without any."""
    if not len(returns):
        return np.full(returns.shape[1:], np.nan) if returns.ndim > 1 else float("nan")
    return returns.mean(axis=0) if returns.ndim > 1 else float(returns.mean())


class Recorder:
    """Adds up what happens; `snapshot` makes `CollectStats` of it."""

    def __init__(self, lanes: int, reward_shape: tuple[int, ...] = ()) -> None:
        self.steps = self.discarded = self.episodes = self.cuts = 0
        self.seconds = self.policy_seconds = self.env_seconds = 0.0
        self._per_lane = np.zeros(lanes, np.int64)
        self._reward_shape = reward_shape
        self._returns: deque[Any] = deque(maxlen=REMEMBERED)
        self._lengths: deque[int] = deque(maxlen=REMEMBERED)

    def add_episodes(self, lanes: np.ndarray, returns: np.ndarray, lengths: np.ndarray, cut: np.ndarray) -> None:
        """Add episodes that stopped: index of lane, return, length, and whether it was cut, [e] each.

        Returns of vector rewards are [e, k].
        """
        if cut.any():
            self.cuts += int(cut.sum())
            lanes, returns, lengths = lanes[~cut], returns[~cut], lengths[~cut]
        self.episodes += len(lanes)
        self._per_lane += np.bincount(lanes, minlength=len(self._per_lane))
        self._returns.extend(returns.tolist())
        self._lengths.extend(lengths.tolist())

    def snapshot(self, carried: int) -> CollectStats:
        """What there is to say now."""
        numbers: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("steps", "discarded", "episodes", "cuts", "seconds", "policy_seconds", "env_seconds")
        }
        return CollectStats(
            carried=carried,
            returns=np.array(self._returns, np.float64).reshape(-1, *self._reward_shape),
            lengths=np.array(self._lengths, np.int64),
            episodes_per_lane=self._per_lane.copy(),
            **numbers,
        )
