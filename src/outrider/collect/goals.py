"""When lanes that go at their own pace have collected enough, and which of them may go on until then."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, final

import numpy as np

from outrider.vector.store import numbers_of

__all__ = ["EnoughLanes", "EnoughRows", "Goal"]

CHUNK = 128
"""Steps of a block where nobody says how many a lane will take."""


class Goal(ABC):
    """Counts the rows of each lane that wait to be handed out.

    Attributes:
        counts: int64 [N].
        length: steps of the blocks that are to be opened.
        aligned: whether lanes that have no rows should begin a block together, because a full one is handed out as
            it is.
    """

    counts: np.ndarray
    length = CHUNK
    aligned = False

    def start(self, counts: np.ndarray, first: int) -> None:
        """Begin with these counts; `first` is the number of the lane that the first of them is of."""
        self.counts = counts
        self._first = first

    def count(self, lanes: Any) -> None:
        """Add a row of each of `lanes`, a range or int64 array."""
        self.counts[numbers_of(lanes) - self._first] += 1

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
    """At least `lanes` lanes have `length` rows; each may have `lead` times as many before it has to idle."""

    aligned = True

    def __init__(self, length: int, lanes: int, lead: int) -> None:
        self.length = length
        self._lanes = lanes
        self._most = length * lead

    @property
    def is_reached(self) -> bool:
        """See `Goal.is_reached`."""
        return int((self.counts >= self.length).sum()) >= self._lanes

    @property
    def going(self) -> np.ndarray:
        """See `Goal.going`."""
        going: np.ndarray = self.counts < self._most
        return going


@final
class EnoughRows(Goal):
    """All lanes together have at least `rows` rows; whichever is ready goes on."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    @property
    def is_reached(self) -> bool:
        """See `Goal.is_reached`."""
        return int(self.counts.sum()) >= self._rows

    @property
    def going(self) -> np.ndarray:
        """See `Goal.going`."""
        return np.ones(len(self.counts), np.bool_)
