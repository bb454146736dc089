"""Worker processes and the conversation with them: started, listened to, watched for death, closed in bounded time."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
import warnings
import weakref
from collections import deque
from multiprocessing import connection
from typing import Any

import cloudpickle

from outrider.errors import ConfigError, EnvironmentFailure, EnvironmentTimeout, WorkerDied, explain
from outrider.vector.bells import Waiter, make_bell
from outrider.vector.bootstrap import WorkerStart, main
from outrider.vector.group import OPERATIONS, STARTING
from outrider.vector.store import HEADER_WORDS, headers
from outrider.vector.watch import Late, Watch
from outrider.vector.worker import ASKED, DOZES, LANE, MAIL, OPERATION, SINCE, unpack

__all__ = ["Crew", "Member", "packed", "share"]

CLOSING_TIME = 8.0
"""Seconds that environments have to close; then the worker is terminated, and killed soon after."""

FAILING_TIME = 3.0
"""The same after a failure or an interrupt, when somebody waits for the error."""

TERMINATION_TIME = 0.5
"""Seconds between the two signals."""


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

    def replace(self, index: int, run: tuple[str, str], payload: Any, delay: float) -> Member:
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
        return member

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
        ready = self._waiter.wait(timeout)
        for member in self.members:
            if member.outbox in ready:
                member.outbox.silence()
            if member.connection in ready:
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


class Member:
    """One worker as its parent sees it."""

    def __init__(self, crew: Crew, index: int, lanes: range) -> None:
        self.index = index
        self.lanes = lanes
        self.process: Any = None
        self.pid = -1
        self.sentinel: Any = None
        self.silent = False
        self.inbox, self.outbox = make_bell(), make_bell()
        self.connection, self._theirs = crew.pipe()
        # No cycle: a mapping is to be let go of with the last reference to it, not at some later garbage collection.
        self._crew: Crew = weakref.proxy(crew)
        self._header = headers(crew.mapping)[index * HEADER_WORDS : (index + 1) * HEADER_WORDS]
        self._header[LANE], self._header[OPERATION] = lanes.start, STARTING
        # A predecessor may have left some.
        self._header[ASKED] = self._header[MAIL] = self._header[SINCE] = self._header[DOZES] = 0
        self._read = 0
        self._delay = 0.0
        self._released = False
        self._mail: deque[tuple[str, Any]] = deque()
        self._last: list[EnvironmentFailure] = []

    def start(self, run: tuple[str, str], payload: bytes, delay: float = 0.0) -> None:
        """Start the process."""
        crew, self._delay = self._crew, delay
        ours = (crew.mapping, self.inbox, self.outbox, self._theirs)
        try:
            self.process = crew.spawn(self, WorkerStart(self.index, self.lanes.start, payload, *ours, run, delay))
        finally:
            self._theirs.close()
        self.sentinel, self.pid = self.process.sentinel, self.process.pid
        # Processes that an environment forks hold the other end of the sentinel: a pidfd does not wait for them.
        with contextlib.suppress(AttributeError, OSError):
            self.sentinel = os.pidfd_open(self.process.pid)
        crew.listen_to(self.outbox, self.connection, self.sentinel)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        # Not by the process object, which cannot know of a process that somebody else has waited for.
        return self.sentinel is not None and not connection.wait([self.sentinel], 0)

    def send(self, message: Any) -> None:
        """Send a message. It is announced first, so that the worker reads while a long one is being written."""
        data = cloudpickle.dumps(message)
        self._header[ASKED] += 1
        self.inbox.ring()
        try:
            self.connection.send_bytes(data)
        except OSError:
            # The worker is gone; whoever waits for it next is told how it died.
            return

    def expect(self, kind: str) -> Any:
        """Wait for a message of this kind and return its content."""
        return self.expect_any(kind)[1]

    def expect_any(self, *kinds: str) -> tuple[str, Any]:
        """Wait for a message of one of these kinds."""
        while True:
            for message in self._mail:
                if message[0] in kinds:
                    self._mail.remove(message)
                    return message
            self._crew.listen()

    def inherit(self, other: Member) -> None:
        """Take over what another one has been told."""
        self._mail.extend(other._mail)

    def take(self, kind: str) -> list[Any]:
        """Remove and return the contents of messages of a kind."""
        if not self._mail:
            return []
        found = [content for name, content in self._mail if name == kind]
        self._mail = deque(message for message in self._mail if message[0] != kind)
        return found

    def catch_up(self) -> None:
        """Read the messages that the worker has sent by its own count."""
        while self._read < self._header[MAIL]:
            self._receive()

    def read_all(self) -> None:
        """Read the messages that are there."""
        try:
            while self.connection.poll():
                self._receive()
        except (EOFError, OSError):
            # Closed by the worker's end; its sentinel says the rest.
            return

    def _receive(self) -> None:
        try:
            message = self.connection.recv_bytes()
            self._read += 1
        except KeyboardInterrupt:
            # Half a message may have been read, and what follows it could not be understood.
            self._crew.close(FAILING_TIME)
            raise
        kind, content, error = unpack(message)
        if error is not None:
            content = self._unreadable(kind, error)
        if kind == "failure":
            raise content
        self._mail.append((kind, content))

    def _unreadable(self, kind: str, error: Exception) -> Any:
        """What to take in place of a message that cannot be unpickled here."""
        lane, operation = int(self._header[LANE]), OPERATIONS[self._header[OPERATION]]
        message = (
            f"worker {self.index} (lanes {self.lanes.start} to {self.lanes.stop - 1}, process {self.process.pid}) sent "
            f"{kind} that cannot be unpickled here: {type(error).__name__}: {error}"
        )
        if kind == "infos":
            warnings.warn(f"{message}. These infos are left out", stacklevel=2)
            return {}, {}
        raise EnvironmentFailure(message, lane=lane, operation=operation, pid=self.process.pid) from error

    def death(self) -> WorkerDied:
        """Say how the worker died, and during what."""
        self.process.join(TERMINATION_TIME)
        code = self.process.exitcode
        lane, operation = int(self._header[LANE]), OPERATIONS[self._header[OPERATION]]
        if code is None:
            how = "ended (why is known to whoever waited for it, such as a handler of SIGCHLD)"
        else:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        doing = f"during {operation} of lane {lane}"
        if operation in {"start", "wait"}:
            lane, doing = -1, "while it started" if operation == "start" else "while it had nothing to do"
        message = (
            f"worker {self.index} (lanes {self.lanes.start} to {self.lanes.stop - 1}, process {self.process.pid}) "
            f"{how} {doing}"
        )
        if operation == "start" and code == 1:
            message += (
                ". A script that starts workers needs its main part under `if __name__ == '__main__':`, because each "
                "worker imports it; the worker's own traceback is above"
            )
        elif code == -signal.SIGKILL:
            message += ". The system kills processes when memory runs out; see its log"
        error = WorkerDied(message, lane=lane, operation=operation, pid=self.process.pid)
        error.exitcode = code
        return error

    def lateness(self, late: Late) -> EnvironmentTimeout:
        """Say what takes the worker so long."""
        lane, operation, pid = int(self._header[LANE]), OPERATIONS[self._header[OPERATION]], self.process.pid
        what = f"lane {lane}, {operation}, process {pid}: the call has not returned"
        if not late.begun:
            lane, operation = -1, "wait"
            what = (
                f"worker {self.index} (lanes {self.lanes.start} to {self.lanes.stop - 1}, process {pid}) has not begun "
                "with what it was asked for"
            )
        message = f"{what} after {late.seconds:.1f} s (step_timeout={late.limit:g}); the process was killed"
        return EnvironmentTimeout(message, lane=lane, operation=operation, pid=pid)

    def ask_to_close(self) -> None:
        """Ask the worker to close its environments and end."""
        if not self.is_alive:
            return
        if self._delay and self._header[OPERATION] == STARTING:
            # It waits for its time, has nothing to close, and does not listen.
            self.signal(signal.SIGTERM)
        self.send(("close",))

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        if number == signal.SIGTERM:
            self.process.terminate()
        else:
            self.process.kill()

    def read_last(self) -> None:
        """Read what the worker says while it closes; a failure of before is kept for `release`."""
        try:
            while not self.silent and self.connection.poll():
                self._receive()
        except (EOFError, OSError):
            self.silent = True
        except EnvironmentFailure as error:
            self._last.append(error)
        except Exception:  # noqa: BLE001 - what else went wrong in a worker is not about closing, and was told before
            return

    def release(self) -> list[EnvironmentFailure]:
        """Read what the worker said last, then let go of its process and descriptors; return what failed."""
        if self._released:
            return []
        self._released = True
        if self.process is not None:
            self.read_last()
        self._read = self._header[MAIL]
        # It failed before it was asked to close: that error is on its way to the user already, or is the only one.
        failures = self._last or [failure for failures in self.take("closed") for failure in failures]
        for one in (self.connection, self.inbox, self.outbox):
            one.close()
        if self.process is not None:
            if self.sentinel != self.process.sentinel:
                os.close(self.sentinel)
            self.sentinel = None
            self.process.join(TERMINATION_TIME)
            with contextlib.suppress(ValueError):  # somebody else has waited for it
                self.process.close()
        return failures


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
