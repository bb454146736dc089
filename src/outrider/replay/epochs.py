"""Every step once before any comes again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider.errors import ConfigError, explain
from outrider.replay.ring import Ring
from outrider.replay.samplers import Accepts, Draws, TooFewError, WithoutPriorities
from outrider.replay.settings import keep_flags

__all__ = ["WithoutReplacement"]


@dataclass(frozen=True)
class WithoutReplacement:
    """Epochs, each in a random order: what could be drawn when an epoch began comes once in it.

    Steps that were overwritten before their turn are passed over; those that came meanwhile are in the next epoch. No
    batch has a step twice, so none can be larger than an epoch.

    Attributes:
        drop_last: whether what is left of an epoch, where it is less than a batch, is left out. Otherwise the batch is
            filled up from the next epoch. Batches have the size that was asked for in either case.

    Raises:
        ConfigError: it is neither True nor False.

    Example:
        >>> WithoutReplacement(drop_last=True)
        WithoutReplacement(drop_last=True)
    """

    drop_last: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no flag."""
        keep_flags(self, ("drop_last",))

    def start(self, ring: Ring) -> Draws:
        """See `Sampler.start`."""
        return EpochDraws(ring, drop_last=self.drop_last)


class EpochDraws(WithoutPriorities):
    """Draws of `WithoutReplacement`.

    Attributes:
        epoch: how many epochs have begun.
    """

    def __init__(self, ring: Ring, *, drop_last: bool) -> None:
        self._ring = ring
        self._drop_last = drop_last
        # What is to come in this epoch begins at `_next`.
        self._order = np.zeros(0, np.int64)
        self._next = 0
        self.epoch = 0

    @property
    def nbytes(self) -> int:
        """See `Draws.nbytes`."""
        return self._order.nbytes

    def draw(self, count: int, rng: np.random.Generator, accepts: Accepts | None) -> tuple[np.ndarray, np.ndarray]:
        """See `Draws.draw`."""
        taken, behind = self._take(count, accepts)
        if len(taken) < count:
            possible = self._possible(accepts)
            if len(possible) < count:
                raise TooFewError(len(possible), count, "steps, which sampling without replacement needs")
            kept = taken[:0] if self._drop_last else taken
            lacking = count - len(kept)
            order = rng.permutation(possible)
            # What this batch already has comes later; there are enough others among the first `count`.
            first = order[:count]
            again = np.isin(first, kept)
            order[:count] = np.concatenate([first[~again], first[again]])
            taken, self._order, behind = np.concatenate([kept, order[:lacking]]), order, lacking
            self.epoch += 1
        self._next = behind
        return taken, np.ones(count)

    def _take(self, count: int, accepts: Accepts | None) -> tuple[np.ndarray, int]:
        """Up to `count` steps of this epoch that are still there, and the place behind the last of them."""
        found: list[np.ndarray] = [self._order[:0]]
        lacking, at = count, self._next
        while lacking and at < len(self._order):
            part = self._order[at : at + lacking]
            at += len(part)
            there = part[self._ring.holds(part)]
            if accepts is not None:
                there = there[accepts(there)]
            found.append(there)
            lacking -= len(there)
        return np.concatenate(found), at

    def _possible(self, accepts: Accepts | None) -> np.ndarray:
        serials = self._ring.serials()
        return serials if accepts is None else serials[accepts(serials)]

    def mark(self) -> tuple[np.ndarray, int, int]:
        """See `Draws.mark`; orders are never changed, but replaced."""
        return self._order, self._next, self.epoch

    def go_back(self, mark: tuple[np.ndarray, int, int]) -> None:
        """See `Draws.go_back`."""
        self._order, self._next, self.epoch = mark

    def begin(self) -> None:
        """See `Draws.begin`."""
        self._order, self._next, self.epoch = np.zeros(0, np.int64), 0, 0

    def state(self) -> dict[str, Any]:
        """See `Draws.state`: what is to come in this epoch."""
        return {"order": self._order[self._next :].copy(), "epoch": self.epoch}

    def restore(self, state: dict[str, Any]) -> None:
        """See `Draws.restore`."""
        order = np.array(state["order"])
        if order.ndim != 1 or order.dtype != np.int64:
            raise ConfigError(
                explain(
                    expected="int64 [n]",
                    found=f"{order.dtype} {order.shape}",
                    where="the state of WithoutReplacement()",
                    fix="restore a state of this sampler",
                )
            )
        self._order, self._next, self.epoch = order, 0, int(state["epoch"])

    def check(self) -> None:
        """See `Draws.check`."""
        order = self._order
        assert 0 <= self._next <= len(order), "more has been taken of the epoch than there was in it"
        assert len(np.unique(order)) == len(order), "a step is twice in the epoch"
        position, lane = np.divmod(order, self._ring.num_envs)
        assert ((position >= 0) & (position < self._ring.heads[lane])).all(), "a step in the epoch has never been there"
