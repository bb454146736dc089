"""What becomes of environments that fail: the choices of `Processes(on_failure=...)`."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from outrider.errors import ConfigError, explain
from outrider.vector.plan import check_count, check_seconds

__all__ = ["Budget", "Drop", "OnFailure", "Restart", "check_on_failure", "fresh_seed"]

REBUILT = 3
"""The purpose of seeds of environments that were rebuilt; see `outrider.seeding`."""


@dataclass(frozen=True)
class Restart:
    """Rebuild an environment that fails in a reset or a step, and go on.

    One that raises is closed and made anew in its own worker, whose other lanes notice nothing. A worker that is
    killed, exits or hangs is replaced by a new one with all its lanes. The episodes that were open in these lanes are
    cut; the seeds of the new ones have not been used before. Each restart is a warning, and is counted.

    Args:
        max_restarts: how often one environment, or one worker, may be restarted within `window`; what fails once more
            is raised as if there were no restarts.
        window: seconds.
        backoff: seconds to wait before the environment is rebuilt, twice as long for each further restart within
            `window`. The other lanes go on meanwhile.

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

    A lane that was dropped never arrives again, and nothing can be sent to it. So this is for `send` and `recv` and for
    collectors that can do with fewer lanes; `VecEnv.step()` and `reset()` need all of them, and raise the failure.
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


class Budget:
    """Counts the restarts of one environment or worker."""

    def __init__(self, terms: Restart) -> None:
        self._terms = terms
        self._times: deque[float] = deque()

    def spend(self) -> float | None:
        """Seconds to wait before one more restart; None if there were too many."""
        now, terms = time.monotonic(), self._terms
        while self._times and now - self._times[0] > terms.window:
            self._times.popleft()
        count = len(self._times)
        if count >= terms.max_restarts:
            return None
        self._times.append(now)
        return math.ldexp(terms.backoff, count)


def fresh_seed(seed: int | None, lane: int, *restarts: int) -> int:
    """Return a seed for an environment that was rebuilt, which no other one and none of its earlier lives has.

    Args:
        seed: what the lane was last seeded with; None for one that nobody can foresee.
        lane: its number.
        restarts: how often its worker was replaced, and how often the environment was rebuilt in it.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(REBUILT, lane, *restarts))
    return int(sequence.generate_state(1, np.uint32)[0])
