"""Count, mean and sum of squared deviations, which can be joined without the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Moments"]


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """What is known of numbers that have been counted, element by element. It does not change: more data make another.

    Attributes:
        count: how many, 1 or more.
        mean: float64 [...].
        squares: float64 [...]: the sum of the squared deviations from the mean.

    Example:
        >>> both = Moments.of(np.array([1.0, 2.0])).joined(Moments.of(np.array([3.0, 6.0])))
        >>> both.count, both.mean.item(), both.variance.item()
        (4, 3.0, 3.5)
    """

    count: int
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]

    @classmethod
    def of(cls, rows: NDArray[Any]) -> Moments:
        """The moments of one row or more, [n, ...], summed in double precision."""
        mean = rows.mean(0, dtype=np.float64)
        centred = np.subtract(rows, mean, dtype=np.float64)
        # The mean once more: its rounding would be squared below, which shows where numbers are far from 0.
        rest = centred.mean(0)
        centred -= rest
        return cls(len(rows), np.asarray(mean + rest), np.asarray(np.square(centred).sum(0)))

    def joined(self, other: Moments) -> Moments:
        """The moments of both parts of the data together.

        Exact but for rounding: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
        sample variances", Stanford University, report STAN-CS-79-773, 1979: the update of two parts of any size.
        """
        count = self.count + other.count
        apart = other.mean - self.mean
        mean = self.mean + apart * (other.count / count)
        squares = self.squares + other.squares + np.square(apart) * (self.count * (other.count / count))
        return Moments(count, np.asarray(mean), np.asarray(squares))

    @property
    def variance(self) -> NDArray[np.float64]:
        """Float64 [...]: that of the population."""
        return np.asarray(self.squares / self.count)

    @property
    def is_finite(self) -> bool:
        """Whether all of it are numbers."""
        return bool(np.isfinite(self.mean).all() and np.isfinite(self.squares).all())
