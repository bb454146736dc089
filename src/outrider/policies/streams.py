"""Keys of counter-based random numbers: one stream for each use, so that none moves another."""

from __future__ import annotations

import numpy as np

from outrider.seeding import NOISE

__all__ = ["RANDOM_ACTIONS", "stream_key"]

RANDOM_ACTIONS = 0
"""The stream of `RandomPolicy`. A new use of counter-based numbers takes the next number."""


def stream_key(seed: int, stream: int) -> np.uint64:
    """Return the key of a stream of a run: 64 bits of NumPy's `SeedSequence`.

    The spawn key has three parts, where the seeds of lanes have two: the two kinds never meet.

    Example:
        >>> len({int(stream_key(seed, stream)) for seed in range(3) for stream in range(2)})
        6
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(NOISE, stream, 0))
    return np.uint64(sequence.generate_state(1, np.uint64)[0])
