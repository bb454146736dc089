"""One worker as its parent sees it: started, spoken to, asked how it died."""

from __future__ import annotations

import contextlib
import os
import signal
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from multiprocessing import connection
from typing import TYPE_CHECKING, Any

import cloudpickle

from outrider.errors import EnvironmentFailure, EnvironmentTimeout, WorkerDied
from outrider.undisturbed import undisturbed
from outrider.vector.bells import make_bell
from outrider.vector.bootstrap import WorkerStart
from outrider.vector.group import OPERATIONS, STARTING
from outrider.vector.store import HEADER_WORDS, headers
from outrider.vector.watch import Late
from outrider.vector.wire import Wire
from outrider.vector.worker import ASKED, DOZES, LANE, MAIL, OPERATION, SINCE, unpack

if TYPE_CHECKING:
    from outrider.vector.crew import Crew

__all__ = ["FAILING_TIME", "TERMINATION_TIME", "Member"]

FAILING_TIME = 3.0
"""Seconds that environments have to close after a failure or an interrupt, when somebody waits for the error."""

TERMINATION_TIME = 0.5
"""Seconds between the two signals to a worker that does not end."""

REAPING_TIME = 5.0
"""Seconds for a fork server to say how a worker has ended; on a busy machine it may not be awake at once."""


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
        self._wire = Wire(self.connection)
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
        self._write(message, lambda: self._crew.patience(self.index))
        self._crew.was_patient(self.index)

    def _write(self, message: Any, patience: Callable[[], float | None] | None) -> None:
        data = cloudpickle.dumps(message)
        self._header[ASKED] += 1
        self.inbox.ring()
        try:
            self._wire.send(data, self.sentinel, patience)
        except (OSError, EOFError):
            # The worker may be gone; whoever waits for it next is told how it died.
            return
        except Exception:
            # It takes too long, and has been killed.
            raise
        except BaseException:
            self._end_if_torn()
            raise

    @property
    def has_read(self) -> bool:
        """Whether messages were read while one was written, of which no descriptor tells."""
        return self._wire.has_read

    def expect(self, kind: str) -> Any:
        """Wait for a message of this kind and return its content."""
        return self.expect_any(kind)[1]

    def expect_any(self, *kinds: str) -> tuple[str, Any]:
        """Wait for a message of one of these kinds."""
        while (message := self.find(*kinds)) is None:
            self._crew.listen()
        return message

    def find(self, *kinds: str) -> tuple[str, Any] | None:
        """Remove and return the first message of one of these kinds that has been read, if there is one."""
        for message in self._mail:
            if message[0] in kinds:
                self._mail.remove(message)
                return message
        return None

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
        try:
            while self._read < self._header[MAIL]:
                self._receive()
        except BaseException:
            self._end_if_torn()
            raise

    def read_all(self) -> None:
        """Read the messages that are there."""
        try:
            while self._wire.poll():
                self._receive()
        except (EOFError, OSError):
            # Closed by the worker's end; its sentinel says the rest.
            return
        except BaseException:
            self._end_if_torn()
            raise

    def _end_if_torn(self) -> None:
        """Give up where an interrupt other than Ctrl-C has broken a message off, so that the next is no message."""
        if self._wire.torn:
            self._crew.close(FAILING_TIME)

    def _receive(self) -> None:
        """Wait for a message and put it into the mail; where that is interrupted, the next call does it.

        Raises:
            EnvironmentFailure: it says so, or it cannot be unpickled.
        """
        kind, content, error = unpack(self._wire.receive())
        with undisturbed():
            self._wire.done()
            self._read += 1
            if error is None and kind != "failure":
                self._mail.append((kind, content))
                return
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
        self._reap()
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

    def _reap(self) -> None:
        """Learn how the process has ended, if it has."""
        # Asked first: processes that the environments have left behind may keep `join` waiting.
        if self.process.exitcode is None:
            self.process.join(TERMINATION_TIME if self.is_alive else REAPING_TIME)

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
        # One that does not read what it was sent before is told by a signal.
        self._write(("close",), None)

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        if number == signal.SIGTERM:
            self.process.terminate()
        else:
            self.process.kill()

    def read_last(self) -> None:
        """Read what the worker says while it closes; a failure of before is kept for `release`."""
        try:
            while not self.silent and self._wire.poll():
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
            self._reap()
            if self.sentinel != self.process.sentinel:
                os.close(self.sentinel)
            self.sentinel = None
            with contextlib.suppress(ValueError):  # somebody else has waited for it
                self.process.close()
        return failures
