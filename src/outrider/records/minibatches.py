"""Shuffled row numbers in batches of one size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from outrider.errors import ConfigError, explain
from outrider.records.arrays import IntArray

__all__ = ["shuffled"]


def shuffled(count: int, size: int, epochs: int, seed: int | None) -> Iterator[IntArray]:
    """Yield batches of exactly `size` of `count` row numbers, shuffled anew for each epoch.

    Raises:
        ConfigError: before the first batch: a size that is not in 1..count, or fewer than 1 epoch.
    """
    if not 1 <= size <= count:
        raise ConfigError(
            explain(
                expected=f"a size from 1 to the {count} valid rows there are",
                found=size,
                where="minibatches(size)",
                fix="ask for smaller batches, or collect more rows",
            )
        )
    if epochs < 1:
        raise ConfigError(
            explain(expected="1 epoch or more", found=epochs, where="minibatches(epochs)", fix="pass epochs=1")
        )
    return _batches(count, size, epochs, np.random.default_rng(seed))


def _batches(count: int, size: int, epochs: int, generator: np.random.Generator) -> Iterator[IntArray]:
    left = np.zeros(0, np.int64)
    for _ in range(epochs):
        rows = np.concatenate((left, generator.permutation(count)))
        whole = len(rows) // size * size
        for start in range(0, whole, size):
            yield rows[start : start + size]
        left = rows[whole:]
