"""Keys of counter-based random numbers: one stream for each use, so that none moves another."""

from __future__ import annotations

import numpy as np

from outrider.seeding import NOISE

__all__ = ["ACTION_NOISE", "EXPLORATION", "RANDOM_ACTIONS", "StreamKey", "stream_key"]

RANDOM_ACTIONS, EXPLORATION, ACTION_NOISE = range(3)
"""The streams of `RandomPolicy`, `EpsilonGreedy` and `ActionNoise`. A new use takes the next number."""


def stream_key(seed: int, stream: int, layer: int = 0) -> np.uint64:
    """Return the key of a stream of a run: 64 bits of NumPy's `SeedSequence`.

    The spawn key has three parts, where the seeds of lanes have two: the two kinds never meet.

    Args:
        seed: of the run.
        stream: one of the numbers above.
        layer: which of several that use the same stream, where policies are wrapped one in another.

    Example:
        >>> len({int(stream_key(seed, stream)) for seed in range(3) for stream in range(2)})
        6
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(NOISE, stream, layer))
    return np.uint64(sequence.generate_state(1, np.uint64)[0])


class StreamKey:
    """The key of a stream, made anew only where the seed is another one than at the last call.

    Example:
        >>> bool(StreamKey(EXPLORATION)(7) == stream_key(7, EXPLORATION))
        True
    """

    def __init__(self, stream: int, layer: int = 0) -> None:
        self._of = stream, layer
        self._known: tuple[int, np.uint64] | None = None

    def __call__(self, seed: int) -> np.uint64:
        """Return the key for a seed."""
        if self._known is None or self._known[0] != seed:
            self._known = (seed, stream_key(seed, *self._of))
        return self._known[1]
