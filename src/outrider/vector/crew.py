"""All worker processes of a mapping: started, listened to, watched for death, closed in bounded time."""

from __future__ import annotations

import itertools
import os
import signal
import time
from typing import Any

import cloudpickle

from outrider.errors import ConfigError, EnvironmentFailure, explain
from outrider.vector.bells import Waiter
from outrider.vector.bootstrap import WorkerStart, main
from outrider.vector.member import FAILING_TIME, TERMINATION_TIME, Member
from outrider.vector.watch import Late, Watch

__all__ = ["CLOSING_TIME", "FAILING_TIME", "Crew", "packed", "share"]

CLOSING_TIME = 8.0
"""Seconds that environments have to close; then the worker is terminated, and killed soon after."""


LEAST_PATIENCE = 0.1
"""Seconds between two looks at a worker that does not read."""


def share(num_envs: int, workers: int) -> list[range]:
    """Split lanes into one range of consecutive lanes for each worker, sizes differing by one at most.

    Example:
        >>> share(5, 2)
        [range(0, 3), range(3, 5)]
    """
    size, rest = divmod(num_envs, workers)
    starts = [index * size + min(index, rest) for index in range(workers + 1)]
    return [range(a, b) for a, b in itertools.pairwise(starts)]


class Crew:
    """All workers of one mapping.

    Every wait listens to all workers' bells, messages and deaths at once, so that none can be missed.
    """

    def __init__(self, mapping: Any, context: Any) -> None:
        self.mapping = mapping
        self.members: list[Member] = []
        self.closed = False
        self._released = False
        self._pid = os.getpid()
        self._context = context
        self._waiter = Waiter([])
        self.watch: Watch | None = None
        # Workers whose clock runs only because they do not read.
        self._patient: set[int] = set()

    def start(self, lanes: range, run: tuple[str, str], payload: Any) -> None:
        """Start a worker that calls the function `run` (module, name) with `payload`, for `lanes`.

        Raises:
            ConfigError: the payload cannot be pickled.
        """
        data = packed(payload, lanes)
        member = Member(self, len(self.members), lanes)
        self.members.append(member)
        member.start(run, data)

    def spawn(self, member: Member, start: WorkerStart) -> Any:
        """Start the process of a member and listen to it from now on."""
        process = self._context.Process(target=main, args=(start,), name=f"outrider-worker-{member.index}")
        process.start()
        return process

    def replace(self, index: int, run: tuple[str, str], payload: Any, delay: float) -> None:
        """Start another worker in the place of one that is of no use any more, and `delay` seconds later than it could.

        What the old one had said, and nobody taken yet, is kept.
        """
        old = self.members[index]
        data = packed(payload, old.lanes)
        self.dismiss(index)
        member = Member(self, index, old.lanes)
        member.inherit(old)
        self.members[index] = member
        member.start(run, data, delay)

    def dismiss(self, index: int) -> None:
        """Kill a worker and let go of it; nobody waits for it any more."""
        member = self.members[index]
        member.signal(signal.SIGKILL)
        member.read_last()
        for one in (member.outbox, member.connection, member.sentinel):
            self._waiter.remove(one)
        member.release()

    def listen_to(self, *ones: Any) -> None:
        """Wait for these as well."""
        for one in ones:
            self._waiter.add(one)

    def pipe(self) -> tuple[Any, Any]:
        """A connection for messages: the parent's end and the worker's."""
        parent, child = self._context.Pipe(duplex=True)
        return parent, child

    def listen(self, timeout: float | None = None) -> bool:
        """Wait until any worker rings, writes or dies; read what was written.

        Returns:
            False when `timeout` seconds have passed without anything.

        Raises:
            EnvironmentFailure: a worker reports one, died, or takes too long for a call.
        """
        if self.watch is not None:
            left = self.watch.remaining()
            timeout = left if timeout is None or (left is not None and left < timeout) else timeout
        if any(member.has_read for member in self.members):
            timeout = 0
        ready = self._waiter.wait(timeout)
        for member in self.members:
            if member.outbox in ready:
                member.outbox.silence()
            if member.connection in ready or member.has_read:
                member.read_all()
            if member.sentinel in ready:
                member.read_all()
                raise member.death()
        self._end_late(None if self.watch is None else self.watch.look())
        return bool(ready)

    def glance(self) -> None:
        """For those who have no need to wait: see now and then whether somebody takes too long.

        Raises:
            EnvironmentTimeout: a worker does.
        """
        if self.watch is not None:
            self._end_late(self.watch.glance())

    def patience(self, index: int) -> float | None:
        """For how long a worker may still leave unread what it is being sent.

        Raises:
            EnvironmentTimeout: for no time.
        """
        watch = self.watch
        if watch is None:
            return None
        if watch.questioned(index):
            self._patient.add(index)
        late = watch.look()
        if late is not None and late.index == index:
            self._end_late(late)
        # Another one may be late; whoever waits next is told.
        return max(watch.remaining() or watch.limit, LEAST_PATIENCE)

    def was_patient(self, index: int) -> None:
        """A worker has read what it was sent."""
        if index in self._patient:
            assert self.watch is not None
            self._patient.discard(index)
            self.watch.answered(index)

    def _end_late(self, late: Late | None) -> None:
        """Kill the worker that takes too long, which would not hear anything else, and say so."""
        if late is not None:
            member = self.members[late.index]
            error = member.lateness(late)
            member.signal(signal.SIGKILL)
            raise error

    def take(self, kind: str) -> list[Any]:
        """Remove and return the contents of all messages of a kind that have been read."""
        return [content for member in self.members for content in member.take(kind)]

    @property
    def pids(self) -> list[int]:
        """Processes that are alive."""
        return [m.process.pid for m in self.members if not self.closed and m.is_alive]

    def close(self, patience: float | None = None) -> list[EnvironmentFailure]:
        """Ask every worker to close its environments, then end every process; return what failed.

        An interrupted close can be called again.

        Args:
            patience: seconds for the environments to close; None means `CLOSING_TIME`.
        """
        if self._released or os.getpid() != self._pid:
            return []
        self.closed = True
        for member in self.members:
            member.ask_to_close()
        self._wait_for_ends(CLOSING_TIME if patience is None else patience)
        for end in (signal.SIGTERM, signal.SIGKILL):
            for member in self.members:
                if member.is_alive:
                    member.signal(end)
            self._wait_for_ends(TERMINATION_TIME)
        failures = [failure for member in self.members for failure in member.release()]
        self.mapping.seal()
        self._released = True
        return failures

    def _wait_for_ends(self, patience: float) -> None:
        """Wait until every worker has ended, for `patience` seconds, and read what they say meanwhile."""
        deadline = time.monotonic() + patience
        while alive := [member for member in self.members if member.is_alive]:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            open_ones = [member.connection for member in alive if not member.silent]
            Waiter([*(member.sentinel for member in alive), *open_ones]).wait(left)
            for member in alive:
                member.read_last()


def packed(payload: Any, lanes: range) -> bytes:
    """Pickle what a worker is given.

    Raises:
        ConfigError: it cannot be pickled.
    """
    try:
        return bytes(cloudpickle.dumps(payload))
    except Exception as error:
        raise ConfigError(
            explain(
                expected="factories that can be sent to a worker",
                found=f"{type(error).__name__}: {error}",
                where=f"lanes {lanes.start} to {lanes.stop - 1}",
                fix="create what cannot be pickled (locks, files, connections, environments) inside the factory",
            )
        ) from error
