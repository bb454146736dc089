"""Worker processes and the conversation with them: started, listened to, watched for death, closed in bounded time."""

from __future__ import annotations

import signal
import time
from collections import deque
from typing import Any

import cloudpickle

from outrider.errors import EnvironmentFailure, WorkerDied
from outrider.vector.bells import Waiter, make_bell
from outrider.vector.bootstrap import WorkerStart, main
from outrider.vector.group import OPERATIONS
from outrider.vector.store import HEADER_WORDS, headers
from outrider.vector.worker import ASKED, LANE, MAIL, OPERATION

__all__ = ["Crew", "Member", "share"]

CLOSING_TIME = 4.0
"""Seconds that environments have to close; then the worker is terminated, and killed a second later."""


def share(num_envs: int, workers: int) -> list[range]:
    """Split lanes into one range of consecutive lanes for each worker, sizes differing by one at most.

    Example:
        >>> share(5, 2)
        [range(0, 3), range(3, 5)]
    """
    size, rest = divmod(num_envs, workers)
    starts = [index * size + min(index, rest) for index in range(workers + 1)]
    return [range(a, b) for a, b in zip(starts, starts[1:], strict=False)]


class Crew:
    """All workers of one mapping.

    Every wait listens to all workers' bells, messages and deaths at once, so that none can be missed.
    """

    def __init__(self, mapping: Any, context: Any) -> None:
        self.mapping = mapping
        self.members: list[Member] = []
        self.closed = False
        self._context = context
        self._waiter = Waiter([])

    def start(self, lanes: range, run: tuple[str, str], payload: Any) -> None:
        """Start a worker that calls the function `run` (module, name) with `payload`, for `lanes`."""
        self.members.append(Member(self, len(self.members), lanes, run, cloudpickle.dumps(payload)))

    def spawn(self, member: Member, start: WorkerStart) -> Any:
        """Start the process of a member and listen to it from now on."""
        process = self._context.Process(target=main, args=(start,), name=f"outrider-worker-{member.index}")
        process.start()
        for one in (member.outbox, member.connection, process.sentinel):
            self._waiter.add(one)
        return process

    def pipe(self) -> tuple[Any, Any]:
        """A connection for messages: the parent's end and the worker's."""
        parent, child = self._context.Pipe(duplex=True)
        return parent, child

    def listen(self, timeout: float | None = None) -> bool:
        """Wait until any worker rings, writes or dies; read what was written.

        Returns:
            False when `timeout` seconds have passed without anything.

        Raises:
            EnvironmentFailure: a worker reports one, or died.
        """
        ready = self._waiter.wait(timeout)
        for member in self.members:
            if member.outbox in ready:
                member.outbox.silence()
            if member.connection in ready:
                member.read_all()
            if member.process.sentinel in ready:
                member.read_all()
                raise member.death()
        return bool(ready)

    def take(self, kind: str) -> list[Any]:
        """Remove and return the contents of all messages of a kind that have been read."""
        return [content for member in self.members for content in member.take(kind)]

    @property
    def pids(self) -> list[int]:
        """Processes that are alive."""
        return [m.process.pid for m in self.members if not self.closed and m.process.is_alive()]

    def close(self) -> list[EnvironmentFailure]:
        """Ask every worker to close its environments, then end every process; return what failed."""
        if self.closed:
            return []
        self.closed = True
        for member in self.members:
            member.ask_to_close()
        deadline = time.monotonic() + CLOSING_TIME
        for member in self.members:
            member.process.join(max(0.0, deadline - time.monotonic()))
        late = [m for m in self.members if m.process.is_alive()]
        for end in (signal.SIGTERM, signal.SIGKILL):
            for member in late:
                member.signal(end)
            deadline = time.monotonic() + 1.0
            for member in late:
                member.process.join(max(0.0, deadline - time.monotonic()))
            late = [m for m in late if m.process.is_alive()]
        return [failure for member in self.members for failure in member.release()]


class Member:
    """One worker as its parent sees it."""

    def __init__(self, crew: Crew, index: int, lanes: range, run: tuple[str, str], payload: bytes) -> None:
        self.index = index
        self.lanes = lanes
        self.inbox, self.outbox = make_bell(), make_bell()
        self.connection, theirs = crew.pipe()
        self._crew = crew
        self._header = headers(crew.mapping)[index * HEADER_WORDS : (index + 1) * HEADER_WORDS]
        self._read = 0
        self._mail: deque[tuple[str, Any]] = deque()
        self._introduced = False
        start = WorkerStart(index, lanes.start, payload, crew.mapping, self.inbox, self.outbox, theirs, run)
        self.process = crew.spawn(self, start)
        theirs.close()

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
                    self._introduced = True
                    return message
            self._crew.listen()

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
        kind, content = cloudpickle.loads(self.connection.recv_bytes())
        self._read += 1
        if kind == "failure":
            raise content
        self._mail.append((kind, content))

    def death(self) -> WorkerDied:
        """Say how the worker died, and during what."""
        self.process.join()
        code = self.process.exitcode
        lane, operation = int(self._header[LANE]), OPERATIONS[self._header[OPERATION]]
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        doing = "while it had nothing to do" if operation == "wait" else f"during {operation} of lane {lane}"
        message = (
            f"worker {self.index} (lanes {self.lanes.start} to {self.lanes.stop - 1}, process {self.process.pid}) "
            f"{how} {doing}"
        )
        if not self._introduced and code == 1:
            message += (
                ". A script that starts workers needs its main part under `if __name__ == '__main__':`, because each "
                "worker imports it; the worker's own traceback is above"
            )
        elif code == -signal.SIGKILL:
            message += ". The system kills processes when memory runs out; see its log"
        error = WorkerDied(message, lane=lane, operation=operation, pid=self.process.pid)
        error.exitcode = code
        return error

    def ask_to_close(self) -> None:
        """Ask the worker to close its environments and end."""
        if self.process.is_alive():
            self.send(("close",))

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        if number == signal.SIGTERM:
            self.process.terminate()
        else:
            self.process.kill()

    def release(self) -> list[EnvironmentFailure]:
        """Read what the worker said last, then let go of its process and descriptors."""
        try:
            self.read_all()
            failures = [failure for failures in self.take("closed") for failure in failures]
        except EnvironmentFailure as error:
            # It failed before it was asked to close; that error is on its way to the user already, or is the only one.
            failures = [error]
        for one in (self.connection, self.inbox, self.outbox):
            one.close()
        self.process.close()
        return failures
