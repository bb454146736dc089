"""The episodes of a dataset as a sequence that reads only what is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, overload

import numpy as np

from outrider.dataset.segments import TERMINATED, TRUNCATED, EpisodeIndex
from outrider.records import Episode, Episodes, arrays
from outrider.records.arrays import IntArray

__all__ = ["EpisodeSequence", "Read"]

Read: TypeAlias = Callable[[IntArray], Episodes]
"""Reads episodes by their numbers in the index."""

BLOCK_BYTES = 16 << 20
"""About what iteration reads at a time: one episode at a time would spend most of its time looking things up."""


class EpisodeSequence(Sequence[Episode]):
    """Episodes of a dataset, in order of first appearance; `Dataset.episodes` makes it.

    `episodes[i]` reads one `Episode`; slices, index arrays and bool masks select without reading; iterating reads
    blocks of some megabytes; `load` reads all that are selected. What is read is the caller's own copy.

    Example:
        >>> import tempfile
        >>> from outrider.dataset import Dataset
        >>> from outrider.records import Episode, StepSpec
        >>> flags = np.zeros(2, bool)
        >>> part = Episode(
        ...     obs=np.arange(3),
        ...     action=np.zeros(2, int),
        ...     reward=np.ones(2),
        ...     terminated=np.arange(2) == 1,
        ...     truncated=flags,
        ...     cut=flags,
        ...     step=np.arange(2),
        ...     version=np.zeros(2, int),
        ...     episode_id=7,
        ...     env_id=0,
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Dataset.create(f"{folder}/data", StepSpec.of(part)) as dataset:
        ...         steps = dataset.append(part)
        ...         episodes = dataset.episodes()
        ...         episodes[0].obs, episodes.lengths, len(episodes[~episodes.is_complete])
        (array([0, 1, 2]), array([2]), 0)
    """

    def __init__(self, index: EpisodeIndex, chosen: IntArray, read: Read, nbytes: int) -> None:
        self._index = index
        self._chosen = chosen
        self._read = read
        self._step_nbytes = nbytes

    def __len__(self) -> int:
        """The number of episodes."""
        return len(self._chosen)

    def __repr__(self) -> str:
        """Counts, no data."""
        return f"EpisodeSequence({len(self)} episodes, {int(self.lengths.sum())} steps)"

    @property
    def lengths(self) -> IntArray:
        """int64 [E]: the number of steps of each."""
        return self._index.length[self._chosen]

    @property
    def is_complete(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Bool [E]: whether each reaches from its first step to a termination or truncation; a cut is neither."""
        ended = (self._index.ending[self._chosen] & (TERMINATED | TRUNCATED)) != 0
        complete: np.ndarray[Any, np.dtype[np.bool_]] = ended & (self._index.first_step[self._chosen] == 0)
        return complete

    @overload
    def __getitem__(self, key: int) -> Episode: ...
    @overload
    def __getitem__(self, key: slice | IntArray) -> EpisodeSequence: ...
    def __getitem__(self, key: Any) -> Any:
        """Read one episode (an integer), or select several without reading (a slice, an index array, a bool mask)."""
        if isinstance(key, (int, np.integer)):
            return self._read(self._chosen[[range(len(self))[key]]])[0]
        selected = arrays.row_selection(key, len(self), "episodes[...]")
        return EpisodeSequence(self._index, self._chosen[selected], self._read, self._step_nbytes)

    def __iter__(self) -> Iterator[Episode]:
        """Read block by block; the episodes of a block share its memory, so that keeping one keeps the block."""
        limit = max(1, BLOCK_BYTES // max(1, self._step_nbytes))
        ends = np.cumsum(self.lengths)
        start = 0
        while start < len(self):
            before = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
            yield from self._read(self._chosen[start:stop])
            start = stop

    def load(self) -> Episodes:
        """Read all of them into memory.

        Raises:
            DatasetError: a file is missing or damaged.
        """
        return self._read(self._chosen)
