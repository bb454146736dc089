"""Numba kernels. Import this module only where it is used: importing Numba takes longer than the rest of Outrider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["normals", "uniforms"]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2**64 divided by the golden ratio, made odd: the step of SplitMix64's counter."""


@njit(cache=True)
def _mix(z: Any) -> Any:
    """Stafford's variant 13 of the 64-bit finaliser, the one of SplitMix64.

    Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014; Stafford, "Better bit mixing",
    2011.
    """
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True)
def uniforms(key: np.uint64, lanes: NDArray[np.int64], steps: NDArray[np.int64], k: int) -> NDArray[np.float64]:
    """Return k uniform numbers for each row: a pure function of (key, lane, step, column).

    Each of key, lane and step moves the counter of a SplitMix64 generator whose state is the hash of what came before;
    columns are consecutive outputs of the last one. Neighbouring keys, lanes and steps are as unrelated as far ones.

    Args:
        key: uint64, the hash of a seed.
        lanes: int64 [n].
        steps: int64 [n].
        k: the count of columns.

    Returns:
        float64 [n, k], multiples of 2**-53 in [0, 1).

    Example:
        >>> lanes, steps = np.arange(2), np.zeros(2, np.int64)
        >>> uniforms(np.uint64(7), lanes, steps, 3).shape
        (2, 3)
    """
    out = np.empty((len(lanes), k), np.float64)
    one = np.uint64(1)
    base = _mix(np.uint64(key) + GOLDEN)
    for row in range(len(lanes)):
        state = _mix(base + GOLDEN * (np.uint64(lanes[row]) + one))
        state = _mix(state + GOLDEN * (np.uint64(steps[row]) + one))
        for column in range(k):
            state += GOLDEN
            out[row, column] = np.float64(_mix(state) >> np.uint64(11)) * 2.0**-53
    return out


@njit(cache=True)
def normals(key: np.uint64, lanes: NDArray[np.int64], steps: NDArray[np.int64], k: int) -> NDArray[np.float64]:
    """Return k standard normal numbers for each row: a pure function of (key, lane, step, column).

    Box and Muller, "A note on the generation of random normal deviates", Annals of Mathematical Statistics 29, 1958:
    one of each two uniform numbers is the radius, the other one the angle.

    Args:
        key: uint64, the hash of a seed.
        lanes: int64 [n].
        steps: int64 [n].
        k: the count of columns.

    Returns:
        float64 [n, k].

    Example:
        >>> lanes, steps = np.arange(2), np.zeros(2, np.int64)
        >>> normals(np.uint64(7), lanes, steps, 3).shape
        (2, 3)
    """
    uniform = uniforms(key, lanes, steps, 2 * k)
    out = np.empty((len(lanes), k), np.float64)
    for row in range(len(lanes)):
        for column in range(k):
            radius = np.sqrt(-2.0 * np.log1p(-uniform[row, 2 * column]))
            out[row, column] = radius * np.cos(2.0 * np.pi * uniform[row, 2 * column + 1])
    return out
