"""What a dataset holds, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.dataset.segments import CUT, TERMINATED, TRUNCATED, EpisodeIndex

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DatasetSummary", "EpisodeCounts", "Moments", "returns_moments"]


@dataclass(frozen=True, slots=True)
class EpisodeCounts:
    """How the episodes of a dataset end; total = terminated + truncated + cut + open.

    Attributes:
        total: all episodes.
        complete: those from their first step to a termination or truncation.
        terminated: ended by the environment; those with both flags are here.
        truncated: ended by a limit.
        cut: stopped by us.
        open: neither: recording stopped before they did.
    """

    total: int
    complete: int
    terminated: int
    truncated: int
    cut: int
    open: int

    @classmethod
    def of(cls, index: EpisodeIndex) -> EpisodeCounts:
        """Count the episodes of an index."""
        terminated = (index.ending & TERMINATED) != 0
        truncated = ((index.ending & TRUNCATED) != 0) & ~terminated
        cut = ((index.ending & CUT) != 0) & ~terminated & ~truncated
        ended = terminated | truncated
        return cls(
            total=len(index),
            complete=int((ended & (index.first_step == 0)).sum()),
            terminated=int(terminated.sum()),
            truncated=int(truncated.sum()),
            cut=int(cut.sum()),
            open=int((~ended & ~cut).sum()),
        )


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean, standard deviation (of the population), smallest and largest of some numbers.

    Example:
        >>> import numpy as np
        >>> Moments.of(np.array([1.0, 3.0]))
        Moments(mean=2.0, std=1.0, min=1.0, max=3.0)
    """

    mean: float
    std: float
    min: float
    max: float

    @classmethod
    def of(cls, values: np.ndarray) -> Moments | None:
        """The moments of an array, None of an empty one."""
        if not values.size:
            return None
        return cls(float(values.mean()), float(values.std()), float(values.min()), float(values.max()))


def returns_moments(returns: np.ndarray) -> Moments | tuple[Moments, ...] | None:
    """The moments of returns [E], or of each objective of returns [E, k]; None without any."""
    if returns.ndim == 1 or not len(returns):
        return Moments.of(returns)
    return tuple([moments for one in returns.T if (moments := Moments.of(one)) is not None])


@dataclass(frozen=True, slots=True)
class DatasetSummary:
    """What a dataset holds.

    Attributes:
        steps: all steps, those of incomplete episodes included.
        episodes: counts by their ends.
        returns: of the complete episodes, undiscounted; a tuple with one for each objective where rewards are vectors;
            None without any.
        lengths: of the complete episodes, in steps; None without any.
        disk_nbytes: bytes of all files.
    """

    steps: int
    episodes: EpisodeCounts
    returns: Moments | tuple[Moments, ...] | None
    lengths: Moments | None
    disk_nbytes: int

    @property
    def bytes_per_step(self) -> float:
        """Bytes on the disk per step; 0 for an empty dataset."""
        return self.disk_nbytes / self.steps if self.steps else 0.0
