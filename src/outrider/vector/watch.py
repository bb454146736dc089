"""The clock on every call of an environment in a worker: who has been in one call for too long."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.vector.group import CONSTRUCTING, STARTING
from outrider.vector.worker import FINISHED, ISSUED, OPERATION, SINCE

__all__ = ["Late", "Watch"]

SECOND = 1_000_000_000

LATE = SECOND
"""Nanoseconds by which a look may come late. If it is later, this process was stopped or did something else."""


@dataclass(frozen=True)
class Late:
    """A worker that is in one call for too long.

    Attributes:
        index: its number.
        seconds: for how long.
        limit: how long it may be.
        begun: whether it has begun with anything since it was asked.
    """

    index: int
    seconds: float
    limit: float
    begun: bool


class Watch:
    """Knows when each worker has begun with the call that it is in.

    A worker stamps its header before each call of an environment. The clock of a call begins with that stamp, or when
    the worker was asked to do something, whichever is later: a worker that was stopped stamps nothing. While a worker
    has nothing to do, or builds environments, no clock runs. If nobody has looked for long (a shell that was suspended
    stops the workers, too), each call is given the whole time once more.

    Args:
        limit: seconds that a call may take.
        headers: of all workers.
    """

    def __init__(self, limit: float, headers: Sequence[memoryview]) -> None:
        self.limit = limit
        self._limit = round(limit * SECOND)
        self._headers = headers
        self._asked = [0] * len(headers)
        self._pardoned = [(-1, 0)] * len(headers)
        self._questioned: set[int] = set()
        self._gone: set[int] = set()
        self._expected = 0
        self._next_glance = 0

    def asked(self, index: int) -> None:
        """Start the clock of a worker that is about to be given a request, unless it runs already."""
        if not self._is_busy(index):
            self._asked[index] = self._expected = time.monotonic_ns()

    def questioned(self, index: int) -> bool:
        """A worker is about to be sent a message that it has to answer, or to read; return whether that is news."""
        if index in self._questioned:
            return False
        self.asked(index)
        self._questioned.add(index)
        return True

    def answered(self, index: int) -> None:
        """It has answered the message."""
        self._questioned.discard(index)

    def forget(self, index: int) -> None:
        """A worker is gone for good."""
        self._gone.add(index)

    def remaining(self) -> float | None:
        """Seconds until a clock will have run out; None when none runs."""
        deadlines = self._deadlines()
        if not deadlines:
            return None
        self._expected = max(self._expected, min(deadlines)[0])
        return max(0, min(deadlines)[0] - time.monotonic_ns()) / SECOND

    def look(self) -> Late | None:
        """The worker whose clock has run out longest ago, if any."""
        now = time.monotonic_ns()
        if now > self._expected + LATE:
            self._pardon(now)
        self._expected = now
        at, index = min(self._deadlines(), default=(now + 1, -1))
        if at > now:
            return None
        begun = self._headers[index][SINCE] >= self._asked[index]
        return Late(index, (now - at + self._limit) / SECOND, self.limit, begun=begun)

    def glance(self) -> Late | None:
        """The same for those who need not wait: looks only now and then."""
        now = time.monotonic_ns()
        if now < self._next_glance:
            return None
        self._next_glance = now + self._limit // 8
        return self.look()

    def _pardon(self, now: int) -> None:
        """Let the clocks of all calls begin anew, but those for which that was done before."""
        for index, header in enumerate(self._headers):
            if self._pardoned[index][0] != header[SINCE]:
                self._pardoned[index] = (header[SINCE], now)

    def _is_busy(self, index: int) -> bool:
        header = self._headers[index]
        return index not in self._gone and (header[FINISHED] != header[ISSUED] or index in self._questioned)

    def _deadlines(self) -> list[tuple[int, int]]:
        """When each clock that runs will have run out, and whose it is."""
        starts = zip(self._headers, self._asked, self._pardoned, strict=True)
        return [
            (max(asked, header[SINCE], pardoned) + self._limit, index)
            for index, (header, asked, (_, pardoned)) in enumerate(starts)
            if self._is_busy(index) and header[OPERATION] not in (STARTING, CONSTRUCTING)
        ]
