"""Seeds derived from (run seed, lane): distinct over lanes and neighbouring run seeds, the same on every topology."""

from __future__ import annotations

import random
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from outrider.errors import ConfigError, explain

__all__ = ["FIRST_CUT", "NOISE", "kept_globals", "lane_seed", "lane_seeds", "resolve_seed", "seed_globals"]

ENVIRONMENT, NOISE, WORKER, FIRST_CUT = range(4)
"""Purposes: each has a stream of its own, so that adding noise moves no environment."""


def resolve_seed(seed: int | None) -> int:
    """Return `seed`, or a fresh one of 63 bits when it is None.

    Raises:
        ConfigError: the seed is not an integer of 0 or more.
    """
    if seed is None:
        return secrets.randbits(63)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ConfigError(
            explain(expected="an integer of 0 or more, or None", found=repr(seed), where="seed", fix="pass such a seed")
        )
    return int(seed)


def lane_seed(run_seed: int, lane: int, purpose: int = ENVIRONMENT) -> int:
    """Return the seed of a lane: 32 bits, so that environments that seed `numpy.random.RandomState` accept it.

    The sequence is NumPy's `SeedSequence(run_seed, spawn_key=(purpose, lane))`
    (https://numpy.org/doc/stable/reference/random/parallel.html).

    Example:
        >>> lane_seed(0, 0) != lane_seed(0, 1) != lane_seed(1, 0)
        True
    """
    sequence = np.random.SeedSequence(run_seed, spawn_key=(purpose, lane))
    return int(sequence.generate_state(1, np.uint32)[0])


def lane_seeds(run_seed: int, lanes: np.ndarray, purpose: int = ENVIRONMENT) -> list[int]:
    """Return the seed of each of `lanes`."""
    return [lane_seed(run_seed, int(lane), purpose) for lane in lanes]


def seed_globals(seed: int) -> None:
    """Seed the global generators of this process: Python's, NumPy's, and PyTorch's where it is loaded.

    For processes that are ours alone, workers and the command line: what runs in them may draw from these.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the global generator is what is being seeded
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed % 2**63)


@contextmanager
def kept_globals() -> Iterator[None]:
    """Leave the global generators of this process as they were, whatever draws from them in the block.

    Example:
        >>> state = random.getstate()
        >>> with kept_globals():
        ...     _ = random.random()
        >>> random.getstate() == state
        True
    """
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 - it is the global generator that is kept
    torch = sys.modules["torch"].get_rng_state() if "torch" in sys.modules else None
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002 - likewise
        if torch is not None:
            sys.modules["torch"].set_rng_state(torch)
