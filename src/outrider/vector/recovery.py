"""What becomes of environments that fail: the choices of `Processes(on_failure=...)`."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from outrider.errors import ConfigError, EnvironmentFailure, explain
from outrider.vector.plan import check_count, check_seconds

__all__ = [
    "Budget",
    "Drop",
    "OnFailure",
    "Restart",
    "Turn",
    "check_on_failure",
    "fresh_seed",
    "nobody_left",
    "refuse_on_failure",
    "used_up",
]

REBUILT = 3
"""The purpose of seeds of environments that were rebuilt; see `outrider.seeding`."""

LONGEST_DOUBLED = 30.0
"""Seconds up to which the wait before a restart doubles."""


@dataclass(frozen=True)
class Restart:
    """Rebuild an environment that fails in a reset or a step, and go on.

    One that raises is closed and made anew in its own worker, whose other lanes notice nothing. A worker that is
    killed, exits or hangs is replaced by a new one with all its lanes. The episodes that were open in these lanes are
    cut; the seeds of the new ones have not been used before. What `set_attr` has set is not set again. A worker that
    dies in a `call`, `get_attr` or `set_attr` is replaced, too, and the failure is raised: its answer is lost. Each
    restart is a warning, and is counted.

    Args:
        max_restarts: how often one environment, or one worker, may be restarted within `window`; if it fails once more,
            an error of the same class says that they are used up. Its cause is the last failure.
        window: seconds.
        backoff: seconds to wait before the environment is rebuilt, twice as long for each further restart within
            `window`, but not longer than 30 seconds (or than `backoff`, if that is more). The other lanes go on
            meanwhile, if they are not waited for together; each warning says how long it waits.

    Raises:
        ConfigError: a bad number.

    Example:
        >>> Restart(max_restarts=2, window=60.0)
        Restart(max_restarts=2, window=60.0, backoff=0.0)
    """

    max_restarts: int = 3
    window: float = 300.0
    backoff: float = 0.0

    def __post_init__(self) -> None:
        check_count(self.max_restarts, "Restart(max_restarts=...)")
        check_seconds(self.window, "Restart(window=...)")
        if self.backoff != 0:
            check_seconds(self.backoff, "Restart(backoff=...)")


@dataclass(frozen=True)
class Drop:
    """Go on without the lanes that fail, until none is left.

    A lane that was dropped never arrives again, and nothing can be sent to it: `VecEnv.dropped` has those. So this is
    for `send` and `recv` and for collectors that can do with fewer lanes; `VecEnv.step()` and `reset()` need all of
    them, and raise the failure. When the last lane fails, an error says so; its cause is that failure.
    """


OnFailure: TypeAlias = "str | Restart | Drop"


def check_on_failure(choice: Any) -> None:
    """Refuse what is no choice.

    Raises:
        ConfigError: it is none.
    """
    if choice != "raise" and not isinstance(choice, (Restart, Drop)):
        raise ConfigError(
            explain(
                expected="'raise', Restart(...) or Drop()",
                found=repr(choice),
                where="on_failure",
                fix="pass one of these",
            )
        )


def refuse_on_failure(choice: Any, backend: str) -> None:
    """Refuse what needs worker processes.

    Raises:
        ConfigError: it is another choice than "raise", or none.
    """
    check_on_failure(choice)
    if choice != "raise":
        raise ConfigError(
            explain(
                expected="'raise': an environment that exits or is killed takes this process along, and one that "
                "raises may leave threads, locks and half-done work behind",
                found=repr(choice),
                where=f"{backend}(on_failure=...)",
                fix=f"use Processes(workers=..., on_failure={choice!r})",
            )
        )


class Turn(NamedTuple):
    """A restart that may be made.

    Attributes:
        delay: seconds to wait before it.
        number: the how-manieth it is within the window.
        terms: how many there may be.
    """

    delay: float
    number: int
    terms: Restart

    def __str__(self) -> str:
        """When it is, and how many are left."""
        terms = self.terms
        when = f"after {self.delay:g} s" if self.delay else "at once"
        return f"{when} (restart {self.number} of at most {terms.max_restarts} within {terms.window:g} s)"


class Budget:
    """Counts the restarts of one environment or worker."""

    def __init__(self, terms: Restart) -> None:
        self._terms = terms
        self._times: deque[float] = deque()

    def spend(self) -> Turn | None:
        """Take one more restart; None if there were too many."""
        now, terms = time.monotonic(), self._terms
        while self._times and now - self._times[0] > terms.window:
            self._times.popleft()
        count = len(self._times)
        if count >= terms.max_restarts:
            return None
        self._times.append(now)
        longest = max(terms.backoff, LONGEST_DOUBLED)
        # So many doublings are enough for any wait, and a float can still hold them.
        return Turn(min(terms.backoff * 2.0 ** min(count, 100), longest), count + 1, terms)


def used_up(error: EnvironmentFailure, whose: str, terms: Restart) -> EnvironmentFailure:
    """What is raised when `whose` restarts are used up; `error`, the last failure, is its cause."""
    reason = explain(
        expected=f"no failure beyond {terms.max_restarts} restarts of {whose} within {terms.window:g} s",
        found="one more: they are used up",
        where="on_failure=Restart(...)",
        fix="mend what fails, or allow more with max_restarts or a shorter window",
    )
    return _last(error, reason)


def nobody_left(error: EnvironmentFailure, num_envs: int) -> EnvironmentFailure:
    """What is raised when all lanes have been dropped; `error`, the last failure, is its cause."""
    reason = explain(
        expected="at least one lane that works",
        found=f"that no lane is left: all {num_envs} have failed and were dropped",
        where="on_failure=Drop()",
        fix="mend what fails, or have them made anew with on_failure=Restart(...)",
    )
    return _last(error, reason)


def _last(error: EnvironmentFailure, reason: str) -> EnvironmentFailure:
    """An error of the same class and about the same lane, which says why there is no going on."""
    last = type(error)(f"{reason} The last failure: {error}", lane=error.lane, operation=error.operation, pid=error.pid)
    last.__dict__.update(error.__dict__)
    last.__cause__ = error
    return last


def fresh_seed(seed: int | None, lane: int, *restarts: int) -> int:
    """Return a seed for an environment that was rebuilt, which no other one and none of its earlier lives has.

    Args:
        seed: what the lane was last seeded with; None for one that nobody can foresee.
        lane: its number.
        restarts: how often its worker was replaced, and how often the environment was rebuilt in it.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(REBUILT, lane, *restarts))
    return int(sequence.generate_state(1, np.uint32)[0])
