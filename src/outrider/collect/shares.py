"""Who may begin how many episodes: exactly so many in all, from one pot or in equal shares."""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider.vector.driver import STEP, STEP_AND_HOLD

__all__ = ["Shares"]


class Shares:
    """Hands out starts of episodes; every one that is begun is kept, so that no length is favoured.

    Args:
        lanes: the lanes that it is for.
        each: how many episodes each of them begins, int64 [N]; or, if `pooled`, what they begin together: a lane that
            has finished begins another as long as there are any left.
    """

    def __init__(self, lanes: range, each: np.ndarray, *, pooled: bool) -> None:
        self._lanes = lanes
        self._left = each.copy()
        self._pot = int(each.sum())
        self._pooled = pooled

    @classmethod
    def of(cls, count: int, lanes: range, num_envs: int, *, per_lane: bool) -> Shares:
        """The part that `lanes` have in `count` episodes of `num_envs` lanes; the first lanes get what is left over."""
        numbers = np.arange(lanes.start, lanes.stop)
        return cls(lanes, count // num_envs + (numbers < count % num_envs), pooled=not per_lane)

    def first(self) -> np.ndarray:
        """The lanes that begin at once, int64."""
        chosen = np.arange(min(self._pot, len(self._lanes))) if self._pooled else np.flatnonzero(self._left)
        self._left[chosen] -= 1
        self._pot -= len(chosen)
        return chosen + self._lanes.start

    def operation(self, stepping: np.ndarray) -> Any:
        """How to step these lanes: those whose end must not begin another episode are held there."""
        if self._pooled:
            # All of them may end in this step: only if there is a start for each may they reset by themselves.
            return STEP if self._pot >= len(stepping) else STEP_AND_HOLD
        may = self._left[stepping - self._lanes.start] > 0
        return STEP if may.all() else np.where(may, STEP, STEP_AND_HOLD).astype(np.int8)

    def give_up(self, lane: int, others: np.ndarray) -> None:
        """A lane is gone in the middle of an episode; `others`, int64, begin that one and those it had left."""
        index = lane - self._lanes.start
        left, self._left[index] = int(self._left[index]) + 1, 0
        self._pot += 1
        if not self._pooled:
            for number in range(left):
                self._left[others[number % len(others)] - self._lanes.start] += 1

    def claim(self, lane: int) -> bool:
        """Whether a lane that has ended begins another episode; if so, that start is used."""
        index = lane - self._lanes.start
        granted = bool(self._pot if self._pooled else self._left[index] > 0)
        self._left[index] -= granted
        self._pot -= granted
        return granted
