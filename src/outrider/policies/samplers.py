"""From uniform numbers to members of a space: one sampler for each leaf, for whole batches at once.

The distributions are Gymnasium's: uniform where an element is bounded on both sides, the bound plus or minus an
exponential where it is bounded on one side, normal where it is not bounded; integers are rounded down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
from gymnasium import Space, spaces

from outrider.errors import ConfigError, explain

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LeafSampler", "leaf_sampler"]

FAR = 64.0
"""No exponential or normal of 53 random bits goes as far: -ln(2**-53) is 36.8."""


@final
class LeafSampler:
    """Makes values of one leaf from uniform numbers.

    Attributes:
        draws: how many uniform numbers a row takes.
    """

    def __init__(self, shape: tuple[int, ...], draws_each: int, transform: Transform) -> None:
        self._shape = shape
        self._transform = transform
        self.draws = draws_each * int(np.prod(shape, dtype=np.int64))

    def __call__(self, uniform: NDArray[np.float64]) -> NDArray[Any]:
        """Return values [n, *shape] for uniform numbers [n, draws]."""
        return self._transform(uniform).reshape(len(uniform), *self._shape)


Transform: TypeAlias = "Callable[[NDArray[np.float64]], NDArray[Any]]"


def leaf_sampler(space: Space[Any], where: str) -> LeafSampler:
    """Return the sampler of a Box, Discrete, MultiDiscrete or MultiBinary.

    Raises:
        ConfigError: it is none of these, it is empty, or its floats are wider than 64 bits.
    """
    if isinstance(space, spaces.Box):
        return _box(space, where)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        width = np.asarray(space.n if isinstance(space, spaces.Discrete) else space.nvec)
        if np.any(width < 1):
            raise _refuse(space, where, "one choice or more for each element")
        return LeafSampler(width.shape, 1, _integers(_flat_ints(space.start), _flat_ints(width), np.dtype(space.dtype)))
    if isinstance(space, spaces.MultiBinary):
        size = int(np.prod(space.shape, dtype=np.int64))
        return LeafSampler(tuple(space.shape), 1, _integers([0] * size, [2] * size, np.dtype(space.dtype)))
    raise _refuse(space, where, "a Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of them")


def _box(space: spaces.Box[Any], where: str) -> LeafSampler:
    dtype = np.dtype(space.dtype)
    below, above = space.bounded_below.reshape(-1), space.bounded_above.reshape(-1)
    bounded = bool(np.all(below & above))
    if dtype.kind != "f":
        low, high = _flat_ints(space.low), _flat_ints(space.high)
        if bounded:
            width = [b - a + 1 for a, b in zip(low, high, strict=True)]
            return LeafSampler(space.shape, 1, _integers(low, width, dtype))
        return LeafSampler(space.shape, 2, _open_integers(low, high, (below, above), dtype))
    if dtype.itemsize > 8:
        raise _refuse(space, where, "floats of at most 64 bits")
    limits = np.finfo(dtype)
    first = np.maximum(space.low, limits.min).reshape(-1).astype(np.float64)
    last = np.minimum(space.high, limits.max).reshape(-1).astype(np.float64)
    if bounded:
        return LeafSampler(space.shape, 1, _floats(first, last, dtype))
    return LeafSampler(space.shape, 2, _open_floats(first, last, (below, above), dtype))


def _integers(low: list[int], width: list[int], dtype: np.dtype[Any]) -> Transform:
    """Integers from `low` up, `width` of them; exact over the whole range of 64 bits, in steps where width > 2**53."""
    base = _wrapped(low)
    scale = np.array(width, np.float64)
    # Below 2**53, u * width cannot round up to width; above, the next smaller float leaves room for it.
    scale = np.where(scale < 2.0**53, scale, np.nextafter(scale, 0.0))
    return lambda uniform: _to_dtype(base + (uniform * scale).astype(np.uint64), dtype)


def _open_integers(low: list[int], high: list[int], bounded: tuple[Any, Any], dtype: np.dtype[Any]) -> Transform:
    below, above = bounded
    both = below & above
    anchor = [
        a if is_low else b if is_high else 0 for a, b, is_low, is_high in zip(low, high, below, above, strict=True)
    ]
    least = np.array([max(a - c, -FAR) for a, c in zip(low, anchor, strict=True)], np.float64)
    most = np.array([min(b - c, FAR) for b, c in zip(high, anchor, strict=True)], np.float64)
    uniform_part = _integers(low, [b - a + 1 for a, b in zip(low, high, strict=True)], dtype)
    base = _wrapped(anchor)

    def transform(uniform: NDArray[np.float64]) -> NDArray[Any]:
        distance = np.floor(np.clip(_distance(uniform, below, above), least, most)).astype(np.int64)
        half_open = _to_dtype(base + distance.view(np.uint64), dtype)
        return np.where(both, uniform_part(uniform[:, : len(low)]), half_open)

    return transform


def _floats(low: NDArray[np.float64], high: NDArray[np.float64], dtype: np.dtype[Any]) -> Transform:
    if np.all(np.isfinite(high / 2 - low / 2)) and np.all(np.abs(high / 2 - low / 2) < np.finfo(np.float64).max / 2):
        width = high - low
        return lambda uniform: np.minimum(low + uniform * width, high).astype(dtype)
    # The width itself would overflow.
    return lambda uniform: np.clip(low * (1 - uniform) + high * uniform, low, high).astype(dtype)


def _open_floats(
    low: NDArray[np.float64], high: NDArray[np.float64], bounded: tuple[Any, Any], dtype: np.dtype[Any]
) -> Transform:
    below, above = bounded
    both = below & above
    anchor = np.where(below, low, np.where(above, high, 0.0))
    uniform_part = _floats(np.where(both, low, 0.0), np.where(both, high, 0.0), np.dtype(np.float64))

    def transform(uniform: NDArray[np.float64]) -> NDArray[Any]:
        half_open = np.clip(anchor + _distance(uniform, below, above), low, high)
        return np.where(both, uniform_part(uniform[:, : len(low)]), half_open).astype(dtype)

    return transform


def _distance(uniform: NDArray[np.float64], below: Any, above: Any) -> NDArray[np.float64]:
    """The way from the bound of half-bounded elements (exponential), from 0 of unbounded ones (normal): [n, elements].

    Uniform numbers [n, 2 * elements] become normal by Box and Muller, "A note on the generation of random normal
    deviates", Annals of Mathematical Statistics 29, 1958.
    """
    first, second = uniform[:, : len(below)], uniform[:, len(below) :]
    exponential = -np.log1p(-first)
    normal = np.sqrt(2.0 * exponential) * np.cos(2.0 * np.pi * second)
    return np.where(below, exponential, np.where(above, -exponential, normal))


def _flat_ints(array: Any) -> list[int]:
    """The elements as Python integers, which neither wrap nor round."""
    return [int(value) for value in np.asarray(array).reshape(-1)]


def _wrapped(values: list[int]) -> NDArray[np.uint64]:
    """Integers modulo 2**64: additions in uint64 are then right for signed and unsigned alike."""
    return np.array([value % 2**64 for value in values], np.uint64)


def _to_dtype(wrapped: NDArray[np.uint64], dtype: np.dtype[Any]) -> NDArray[Any]:
    return wrapped.astype(dtype) if dtype.kind in "ub" else wrapped.view(np.int64).astype(dtype, copy=False)


def _refuse(space: Space[Any], where: str, expected: str) -> ConfigError:
    fix = "write a policy of your own for this space: a function of the observations will do"
    return ConfigError(explain(expected=expected, found=repr(space), where=where, fix=fix))
