"""Shuffled numbers in batches of one size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from outrider.errors import ConfigError, explain
from outrider.records.arrays import IntArray
from outrider.seeding import resolve_seed

__all__ = ["is_whole", "shuffled"]


def shuffled(count: int, size: int, epochs: int, seed: int | None, *, of: str = "valid rows") -> Iterator[IntArray]:
    """Yield batches of exactly `size` of the numbers below `count`, shuffled anew for each epoch.

    Raises:
        ConfigError: before the first batch: a size that is not in 1..count, fewer than 1 epoch, or a seed that is none.
            `of` says what is counted.
    """
    if not is_whole(size) or not 1 <= size <= count:
        raise ConfigError(
            explain(
                expected=f"a size from 1 to the {count} {of} there are",
                found=repr(size),
                where="minibatches(size)",
                fix="ask for smaller batches, or collect more rows",
            )
        )
    if not is_whole(epochs) or epochs < 1:
        raise ConfigError(
            explain(expected="1 epoch or more", found=repr(epochs), where="minibatches(epochs)", fix="pass epochs=1")
        )
    return _batches(count, size, epochs, np.random.default_rng(resolve_seed(seed)))


def is_whole(value: object) -> bool:
    """Whether it is an integer."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _batches(count: int, size: int, epochs: int, generator: np.random.Generator) -> Iterator[IntArray]:
    left = np.zeros(0, np.int64)
    for _ in range(epochs):
        rows = np.concatenate((left, generator.permutation(count)))
        whole = len(rows) // size * size
        for start in range(0, whole, size):
            yield rows[start : start + size]
        left = rows[whole:]
