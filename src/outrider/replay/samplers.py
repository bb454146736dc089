"""Which steps are drawn from a buffer: whole numbers in, whole numbers out. The protocols, and uniform sampling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from outrider.errors import ConfigError, ReplayError, explain
from outrider.replay.ring import Ring

__all__ = ["Accepts", "Draws", "Sampler", "TooFewError", "Uniform", "WithoutPriorities", "accepted", "among"]

Accepts: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""`accepts(serials)`: which of these steps, int64 [n], a view can begin with: bool [n]."""


class Draws(Protocol):
    """A sampler at work on one ring."""

    @property
    def has_priorities(self) -> bool:
        """Whether `update` is of any use."""

    @property
    def stale_updates(self) -> int:
        """How many priorities came for steps that were not there any more."""

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""

    def draw(self, count: int, rng: np.random.Generator, accepts: Accepts | None) -> tuple[np.ndarray, np.ndarray]:
        """Draw steps: serial numbers int64 [count], and their weights float64 [count].

        Raises:
            ReplayError: there are too few to be drawn; nothing has changed then.
        """

    def mark(self) -> Any:
        """Where draws stand, for `go_back`; costs next to nothing."""

    def go_back(self, mark: Any) -> None:
        """Let it be as if nothing had been drawn since `mark`; nothing else has changed since."""

    def check_update(self, serials: np.ndarray, priorities: np.ndarray) -> None:
        """Raise what `update` would; change nothing."""

    def update(self, serials: np.ndarray, priorities: np.ndarray) -> int:
        """Give steps new priorities, float64 [n]; return how many of them were not there any more."""

    def begin(self) -> None:
        """Begin anew with what the ring holds: as if all of it came just now, to a sampler that knew none of it."""

    def state(self) -> dict[str, Any]:
        """All that the next draws depend on, besides the ring and the generator: arrays and numbers, copies."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a `state`, once the ring holds the same steps again as it did then.

        Raises:
            ConfigError: the state is that of another ring or sampler.
        """

    def check(self) -> None:
        """Verify what holds between any two calls.

        Raises:
            AssertionError: something does not.
        """


class Sampler(Protocol):
    """How to sample; the same one may serve several buffers."""

    def start(self, ring: Ring) -> Draws:
        """Begin to sample from `ring`, which is empty and has never held a step."""


class WithoutPriorities:
    """What is the same for all samplers that have no priorities."""

    has_priorities = False
    stale_updates = 0

    @property
    def nbytes(self) -> int:
        """See `Draws.nbytes`."""
        return 0

    def mark(self) -> Any:
        """See `Draws.mark`."""

    def go_back(self, mark: Any) -> None:
        """See `Draws.go_back`; draws leave nothing behind but in the generator."""

    def check_update(self, serials: np.ndarray, priorities: np.ndarray) -> None:
        """See `Draws.check_update`.

        Raises:
            ConfigError: always; priorities would change nothing.
        """
        raise no_priorities(f"a sampler without: {type(self).__name__}")

    def update(self, serials: np.ndarray, priorities: np.ndarray) -> int:
        """See `Draws.update`.

        Raises:
            ConfigError: always; priorities would change nothing.
        """
        raise no_priorities(f"a sampler without: {type(self).__name__}")

    def begin(self) -> None:
        """See `Draws.begin`; there is nothing that it would have to know."""

    def state(self) -> dict[str, Any]:
        """See `Draws.state`."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """See `Draws.restore`."""

    def check(self) -> None:
        """See `Draws.check`; there is nothing of its own that could be wrong."""


@dataclass(frozen=True)
class Uniform:
    """Every step that is there is equally likely, with replacement.

    Example:
        >>> Uniform()
        Uniform()
    """

    def start(self, ring: Ring) -> Draws:
        """See `Sampler.start`."""
        return UniformDraws(ring)


class UniformDraws(WithoutPriorities):
    """Draws of `Uniform`."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring

    def draw(self, count: int, rng: np.random.Generator, accepts: Accepts | None) -> tuple[np.ndarray, np.ndarray]:
        """See `Draws.draw`."""
        ring = self._ring
        if accepts is None:
            return self._propose(count, rng), np.ones(count)

        def choose() -> np.ndarray:
            serials = ring.serials()
            return one_of(serials[accepts(serials)], count, rng)

        serials = accepted(lambda n: self._propose(n, rng), count, accepts, choose, len(ring))
        return serials, np.ones(count)

    def _propose(self, count: int, rng: np.random.Generator) -> np.ndarray:
        ring = self._ring
        is_even = ring.is_even
        if ring.heads[0] == ring.tails[0] if is_even else not len(ring):
            raise TooFewError(0, 1, "steps to draw from")
        if is_even:
            return rng.integers(ring.tails[0] * ring.num_envs, ring.heads[0] * ring.num_envs, count)
        return among(ring.tails, ring.heads, count, rng)


def among(tails: np.ndarray, heads: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw uniformly from the steps of each lane at positions from `tails` to below `heads`, int64 [N]."""
    lanes = len(heads)
    ends = np.cumsum(heads - tails)
    drawn = rng.integers(0, ends[-1], count)
    lane = np.searchsorted(ends, drawn, side="right")
    serials: np.ndarray = (heads[lane] - ends[lane] + drawn) * lanes + lane
    return serials


def one_of(possible: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw uniformly from these steps, int64 [n].

    Raises:
        ReplayError: there are none.
    """
    if not len(possible):
        raise TooFewError(0, 1, "steps that the view can begin with")
    return possible[rng.integers(0, len(possible), count)]


def accepted(
    propose: Callable[[int], np.ndarray],
    count: int,
    accepts: Accepts,
    choose: Callable[[], np.ndarray],
    budget: int,
) -> np.ndarray:
    """Draw until `count` steps are accepted: the distribution is that of `propose`, given that they are.

    Args:
        propose: draws so many steps, independently.
        count: how many are wanted.
        accepts: says which can be taken.
        choose: draws `count` steps from all that can be taken, with the same distribution.
        budget: how many proposals cost about as much as `choose`, which is called when so many were not enough.
    """
    found: list[np.ndarray] = []
    # Some more than are wanted, so that one round is often enough.
    lacking, ask, tried = count, count * 5 // 4 + 16, 0
    while tried < budget or not tried:
        drawn = propose(ask)
        good = drawn[accepts(drawn)][:lacking]
        found.append(good)
        lacking -= len(good)
        if not lacking:
            return np.concatenate(found)
        tried += ask
        # As many as seem to be needed, and some more, but never so many that one round is most of the budget.
        taken = count - lacking
        wanted = lacking * tried * 5 // (taken * 4) + 16 if taken else 4 * tried
        ask = min(wanted, max(count, budget // 4))
    return choose()


class TooFewError(ReplayError):
    """Less can be drawn than is needed.

    Args:
        have: how many there are.
        need: how many there should be.
        what: what they are.
        fix: what the sampler knows to do about it; None: `drawn` asks the view.
    """

    def __init__(self, have: int, need: int, what: str, fix: str | None = None) -> None:
        self.known, self.is_advised = (have, need, what), fix is not None
        expected = f"{need} {what} or more"
        super().__init__(
            explain(expected=expected, found=have, where="sample(count)", fix=fix or "collect more, or ask for fewer")
        )


def no_priorities(found: str) -> ConfigError:
    """The error for priorities that nobody uses."""
    return ConfigError(
        explain(
            expected="a sampler with priorities",
            found=found,
            where="update(index, priorities)",
            fix="make the buffer with sampler=outrider.Prioritized()",
        )
    )
