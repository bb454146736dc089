"""What no buffer can do without: replay_bare.py WHAT."""

import sys
from collections.abc import Callable

import numpy as np
from replay_workloads import FRAMES, LANES, ROLLOUT, SMALL, Size
from rounds import serve


def take(size: Size) -> Callable[[], int]:
    """256 rows of an array, twice: observations and those behind them."""
    rows = np.zeros((size.rows, *size.shape), size.dtype)
    rows[:] = 1
    rng = np.random.default_rng(0)

    def gather() -> int:
        index = rng.integers(0, size.rows, 256)
        rows.take(index, 0)
        rows.take(index, 0)
        return 1

    return gather


def copy(size: Size) -> Callable[[], int]:
    """Copy as many bytes as a rollout's observations have into the next rows."""
    count = ROLLOUT * LANES
    rows = np.zeros((size.rows // count * count, *size.shape), size.dtype)
    rows[:] = 1
    block = np.ones((count, *size.shape), size.dtype)
    at = 0

    def write() -> int:
        nonlocal at
        rows[at : at + count] = block
        at = (at + count) % len(rows)
        return 1

    return write


WHAT = {
    "sample": lambda: take(SMALL),
    "sample frames": lambda: take(FRAMES),
    "extend": lambda: copy(SMALL),
    "extend frames": lambda: copy(FRAMES),
}

if __name__ == "__main__":
    work = WHAT[sys.argv[1]]()
    serve(lambda: sum(work() for _ in range(20)))
