"""Steps in proportion to their priorities."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider.errors import ConfigError, explain
from outrider.replay.ring import Ring
from outrider.replay.samplers import Accepts, Draws, UniformDraws, accepted, one_of
from outrider.replay.settings import keep_real, real_number

__all__ = ["Prioritized", "PrioritizedDraws", "checked_priorities", "checked_values"]

EXPONENT = (0.0, math.inf)
"""What alpha and beta may be."""


@dataclass(frozen=True)
class Prioritized:
    """Steps are drawn in proportion to priority**alpha, independently, with replacement.

    Schaul and others, "Prioritized experience replay", ICLR 2016, section 3.3, proportional variant; its stratified
    draws are not made, so that samples are independent.

    - A new step has the greatest priority that any step has which is there at the time; 1 where none has any.
    - A step of priority 0 is not drawn, unless all have 0: then all are equally likely.
    - Sequences and whole episodes are drawn by the priorities of their first steps; no other step has one.
    - The weight of a sample is (N * P)**-beta over the greatest of its batch.

    Attributes:
        alpha: 0 or more; 0 makes all steps of a priority above 0 equally likely. It is applied when a priority is set.
        beta: 0 or more; or a function of the number of samples drawn so far, asked once for each batch.

    Raises:
        ConfigError: one of them is out of its range.

    Example:
        >>> Prioritized(alpha=0.5, beta=lambda drawn: min(1.0, 0.4 + drawn / 1e6)).alpha
        0.5
    """

    alpha: float = 0.6
    beta: float | Callable[[int], float] = 0.4

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense."""
        keep_real(self, {"alpha": EXPONENT} if callable(self.beta) else {"alpha": EXPONENT, "beta": EXPONENT})

    def start(self, ring: Ring) -> Draws:
        """See `Sampler.start`."""
        return PrioritizedDraws(ring, self)


class PrioritizedDraws:
    """Draws of `Prioritized`.

    Attributes:
        drawn: how many samples there have been.
        stale_updates: how many priorities came for steps that were not there any more.
    """

    has_priorities = True

    def __init__(self, ring: Ring, sampler: Prioritized) -> None:
        self._ring = ring
        self._alpha, self._beta = sampler.alpha, sampler.beta
        self._tree = importlib.import_module("outrider.replay.sum_tree").SumTree(ring.rows)
        # So great that no sum can become infinite.
        self._most = float(np.finfo(np.float64).max) / (2 * ring.rows)
        self._uniform = UniformDraws(ring)
        self.drawn, self.stale_updates = 0, 0
        ring.listeners.append(self)

    @property
    def nbytes(self) -> int:
        """See `Draws.nbytes`."""
        return int(self._tree.nbytes)

    def arrived(self, rows: np.ndarray) -> None:
        """See `Listener.arrived`."""
        self._tree.fill(self._drawable(rows), self._tree.top or 1.0)

    def _drawable(self, rows: np.ndarray) -> np.ndarray:
        """Those of these rows, int64 [n], that a sample may begin with.

        The others have no priority: nobody would ever change theirs, and after a while hardly anything but them would
        be drawn, in vain.
        """
        ring = self._ring
        return rows if ring.may_begin is None else rows[ring.may_begin(ring.columns["step"][rows])]

    def left(self, rows: np.ndarray) -> None:
        """See `Listener.left`."""
        self._tree.fill(rows, 0.0)

    def draw(self, count: int, rng: np.random.Generator, accepts: Accepts | None) -> tuple[np.ndarray, np.ndarray]:
        """See `Draws.draw`."""
        beta = self._beta
        if callable(beta):
            beta = real_number(
                beta(self.drawn), *EXPONENT, f"the value of Prioritized(beta) after {self.drawn} samples"
            )
        if not self._tree.total:
            serials, weights = self._uniform.draw(count, rng, accepts)
        else:
            serials = self._draw(count, rng, accepts)
            weights = self._weights(serials, beta)
        self.drawn += count
        return serials, weights

    def _draw(self, count: int, rng: np.random.Generator, accepts: Accepts | None) -> np.ndarray:
        heads, rows = self._ring.heads, self._ring.rows

        def propose(number: int) -> np.ndarray:
            serials: np.ndarray = self._tree.draw(heads, rows, rng.random(number))
            return serials

        if accepts is None:
            return propose(count)
        return accepted(propose, count, accepts, lambda: self._choose(count, rng, accepts), len(self._ring))

    def _choose(self, count: int, rng: np.random.Generator, accepts: Accepts) -> np.ndarray:
        """Draw from all steps that are accepted, by their priorities, or uniformly if all of theirs are 0."""
        serials = self._ring.serials()
        possible = serials[accepts(serials)]
        numbers = self._numbers(possible)
        above = numbers > 0
        if not above.any():
            return one_of(possible, count, rng)
        possible, ends = possible[above], np.cumsum(numbers[above])
        at = np.searchsorted(ends, rng.random(count) * ends[-1], side="right")
        chosen: np.ndarray = possible[np.minimum(at, len(possible) - 1)]
        return chosen

    def _numbers(self, serials: np.ndarray) -> np.ndarray:
        """What priority**alpha of these steps is."""
        numbers: np.ndarray = self._tree.leaves.take(serials % self._ring.rows)
        return numbers

    def _weights(self, serials: np.ndarray, beta: float) -> np.ndarray:
        numbers = self._numbers(serials)
        least = numbers.min()
        # N and the total cancel out in the quotient.
        return (least / numbers) ** beta if least > 0 else np.ones(len(serials))

    def mark(self) -> int:
        """See `Draws.mark`."""
        return self.drawn

    def go_back(self, mark: int) -> None:
        """See `Draws.go_back`."""
        self.drawn = mark

    def check_update(self, serials: np.ndarray, priorities: np.ndarray) -> None:
        """See `Draws.check_update`.

        Raises:
            ConfigError: they are no serial numbers and priorities.
        """
        ring = self._ring
        serials, priorities = checked_priorities(serials, priorities)
        given = (serials >= 0) & (serials // ring.num_envs < ring.heads[serials % ring.num_envs])
        if not given.all():
            raise _refused("the `index` of batches of this buffer", f"{serials[~given][:5]}", "pass `batch.index`")
        checked_values(priorities)
        with np.errstate(over="ignore"):
            too_great = priorities**self._alpha > self._most
        if too_great.any():
            expected = "finite priorities of 0 or more, of a finite sum"
            raise _refused(expected, f"{priorities[too_great][:5]}", "look for what made them, e.g. the loss")

    def update(self, serials: np.ndarray, priorities: np.ndarray) -> int:
        """See `Draws.update`.

        Raises:
            ConfigError: they are no serial numbers and priorities; nothing has changed then.
        """
        ring = self._ring
        serials, priorities = checked_priorities(serials, priorities)
        bounds, power = (ring.tails, ring.heads, ring.rows), (self._alpha, self._most)
        stale = int(self._tree.update(bounds, serials, priorities, power))
        if stale < 0:
            self.check_update(serials, priorities)
            raise _refused(
                "finite priorities of 0 or more, of a finite sum",
                f"{priorities[:5]}",
                "look for what made them, e.g. the loss",
            )
        self.stale_updates += stale
        return stale

    def begin(self) -> None:
        """See `Draws.begin`."""
        self.restore({"numbers": np.zeros(len(self._ring)), "drawn": 0, "stale_updates": 0})
        self.arrived(self._ring.serials() % self._ring.rows)

    def state(self) -> dict[str, Any]:
        """See `Draws.state`: the numbers of the steps that are there, in the order of their serial numbers, and totals.

        Sums are not in it: they are the same again whatever the order in which the numbers came.
        """
        numbers = self._numbers(self._ring.serials())
        return {"numbers": numbers, "drawn": self.drawn, "stale_updates": self.stale_updates}

    def restore(self, state: dict[str, Any]) -> None:
        """See `Draws.restore`."""
        serials, numbers = self._ring.serials(), np.asarray(state["numbers"])
        if numbers.shape != serials.shape or numbers.dtype != np.float64:
            raise ConfigError(
                explain(
                    expected=f"float64 {serials.shape}, one number for each step that is there",
                    found=f"{numbers.dtype} {numbers.shape}",
                    where="the state of Prioritized()",
                    fix="restore what the buffer holds first",
                )
            )
        leaves = np.zeros(self._ring.rows)
        leaves[serials % self._ring.rows] = numbers
        self._tree.set_all(leaves)
        self.drawn, self.stale_updates = int(state["drawn"]), int(state["stale_updates"])

    def check(self) -> None:
        """See `Draws.check`."""
        self._tree.check()
        empty = np.ones(self._ring.rows, np.bool_)
        empty[self._ring.serials() % self._ring.rows] = False
        assert not self._tree.leaves[empty].any(), "a row that holds no step has a priority"
        assert self.drawn >= 0, "fewer than no samples were drawn"


def checked_priorities(serials: Any, priorities: Any) -> tuple[np.ndarray, np.ndarray]:
    """Serial numbers, int64 [n], and priorities, float64 [n], contiguous.

    Raises:
        ConfigError: they are of other kinds or shapes.
    """
    serials, priorities = _as_array(serials), _as_array(priorities)
    if serials.ndim != 1 or serials.shape != priorities.shape:
        found = f"shapes {serials.shape} and {priorities.shape}"
        raise _refused("two vectors of the same length", found, "pass `batch.index` and one priority for each of it")
    if len(serials) and (serials.dtype.kind not in "iu" or priorities.dtype.kind not in "iuf"):
        found = f"dtypes {serials.dtype} and {priorities.dtype}"
        raise _refused("integers and real numbers", found, "pass `batch.index` and one priority for each of it")
    return np.ascontiguousarray(serials, np.int64), np.ascontiguousarray(priorities, np.float64)


def checked_values(priorities: np.ndarray) -> None:
    """Refuse priorities, float64 [n], that are none.

    Raises:
        ConfigError: one is negative, infinite or not a number.
    """
    right = np.isfinite(priorities) & (priorities >= 0)
    if not right.all():
        wrong = f"{priorities[~right][:5]}"
        raise _refused("finite priorities of 0 or more", wrong, "look for what made them, e.g. the loss")


def _as_array(values: Any) -> np.ndarray:
    """An array, or a tensor as one: NumPy has no bfloat16, and takes no gradients."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.double() if values.is_floating_point() else values
    return np.asarray(values)


def _refused(expected: str, found: str, fix: str) -> ConfigError:
    return ConfigError(explain(expected=expected, found=found, where="update(index, priorities)", fix=fix))
