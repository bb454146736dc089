"""When lanes that go at their own pace have collected enough, and which of them may go on until then."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import numpy as np

__all__ = ["EnoughLanes", "EnoughRows", "Goal"]

CHUNK = 128
"""Steps of a block where nobody says how many a lane will take."""


class Goal(ABC):
    """Counts the rows of each lane that wait to be handed out.

    Attributes:
        counts: int64 [N].
        alive: bool [N], the lanes that there still are.
        length: steps of the blocks that are to be opened.
        aligned: whether lanes that have no rows should begin a block together, because a full one is handed out as
            it is.
        counts_dummies: whether a step that did nothing but reset a lane counts as a row.
    """

    counts: np.ndarray
    alive: np.ndarray
    length = CHUNK
    aligned = False
    counts_dummies = False

    def start(self, counts: np.ndarray, alive: np.ndarray) -> None:
        """Begin with these counts; `alive` is looked at again and again."""
        self.counts = counts
        self.alive = alive

    @abstractmethod
    def count(self, index: np.ndarray, dummies: np.ndarray) -> None:
        """Add a row of each of these lanes, int64 [k], counted from the first lane of the loop; `dummies` had none."""

    @property
    @abstractmethod
    def is_reached(self) -> bool:
        """Whether there is enough."""

    @property
    @abstractmethod
    def going(self) -> np.ndarray:
        """The lanes that may take another step, bool [N]."""


@final
class EnoughLanes(Goal):
    """At least `lanes` lanes, or all there still are, have `length` rows; with `lead` times as many a lane idles."""

    aligned = True
    counts_dummies = True

    def __init__(self, length: int, lanes: int, lead: int) -> None:
        self.length = length
        self._lanes = lanes
        self._most = length * lead
        # How many lanes have `length` rows, of those that were there when it was last counted.
        self._full = self._counted = -1

    def count(self, index: np.ndarray, dummies: np.ndarray) -> None:
        """See `Goal.count`."""
        del dummies
        now = self.counts[index] + 1
        self.counts[index] = now
        self._full += int(np.count_nonzero(now == self.length))

    @property
    def is_reached(self) -> bool:
        """See `Goal.is_reached`."""
        alive = int(np.count_nonzero(self.alive))
        if alive != self._counted:
            self._counted, self._full = alive, int(np.count_nonzero((self.counts >= self.length) & self.alive))
        return self._full >= min(self._lanes, alive)

    @property
    def going(self) -> np.ndarray:
        """See `Goal.going`."""
        going: np.ndarray = self.alive & (self.counts < self._most)
        return going


@final
class EnoughRows(Goal):
    """All lanes together have at least `rows` rows; whichever is ready goes on."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def start(self, counts: np.ndarray, alive: np.ndarray) -> None:
        """See `Goal.start`."""
        super().start(counts, alive)
        self._lacking = self._rows - int(counts.sum())

    def count(self, index: np.ndarray, dummies: np.ndarray) -> None:
        """See `Goal.count`."""
        self.counts[index] += 1
        self._lacking -= len(index)
        if len(dummies):
            self.counts[dummies] -= 1
            self._lacking += len(dummies)

    @property
    def is_reached(self) -> bool:
        """See `Goal.is_reached`."""
        return self._lacking <= 0

    @property
    def going(self) -> np.ndarray:
        """See `Goal.going`."""
        return self.alive
