"""Who may begin how many episodes: exactly so many in all, from one pot or in equal shares."""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider.vector.driver import STEP, STEP_AND_HOLD

__all__ = ["Shares"]


class Shares:
    """Hands out starts of episodes; every one that is started is kept, so that no length is favoured.

    Args:
        count: episodes in all.
        lanes: the lanes.
        per_lane: give each lane its share beforehand (the first ones one more if it does not divide); otherwise a lane
            that has finished begins another as long as there are any left.
    """

    def __init__(self, count: int, lanes: range, *, per_lane: bool) -> None:
        n = self._lanes = len(lanes)
        self._first_lane = lanes.start
        self._left: np.ndarray | None = None
        self._pot = 0
        if per_lane:
            self._left = count // n + (np.arange(n) < count % n)
        else:
            self._pot = count

    def first(self) -> np.ndarray:
        """The lanes that begin at once, int64."""
        if self._left is not None:
            chosen = np.flatnonzero(self._left)
            self._left[chosen] -= 1
        else:
            chosen = np.arange(min(self._pot, self._lanes))
            self._pot -= len(chosen)
        return chosen + self._first_lane

    def operation(self, stepping: np.ndarray) -> Any:
        """How to step these lanes: those whose end must not begin another episode are held there."""
        if self._left is None:
            # All of them may end in this step: only if there is a start for each may they reset by themselves.
            return STEP if self._pot >= len(stepping) else STEP_AND_HOLD
        may = self._left[stepping - self._first_lane] > 0
        if may.all():
            return STEP
        return np.where(may, STEP, STEP_AND_HOLD).astype(np.int8)

    def claim(self, lane: int) -> bool:
        """Whether a lane that has ended begins another episode; if so, that start is used."""
        if self._left is None:
            granted = self._pot > 0
            self._pot -= granted
            return granted
        granted = bool(self._left[lane - self._first_lane] > 0)
        self._left[lane - self._first_lane] -= granted
        return granted
