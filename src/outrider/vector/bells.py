"""Wake-ups between processes: an eventfd where the system has it, a pipe elsewhere. Nothing here has a name.

A wake-up is a hint: whoever wakes looks at the sequence numbers in shared memory, which are the truth. This module
imports nothing beyond the standard library, so that a worker can unpickle a bell before it loads NumPy.
"""

from __future__ import annotations

import os
import select
import threading
from multiprocessing import connection, reduction
from typing import Any, Protocol

__all__ = ["Bell", "EventBell", "Fence", "PipeBell", "Waiter", "make_bell"]


class Bell(Protocol):
    """Rung by one side, waited for by the other."""

    def ring(self) -> None:
        """Wake whoever waits, or let the next wait return at once."""

    def silence(self) -> None:
        """Forget the rings so far."""

    def wait(self, timeout: float | None = None) -> None:
        """Return when it has rung, or after `timeout` seconds, and forget the rings; only for one that waits alone."""

    def fileno(self) -> int:
        """The descriptor to wait on."""

    def close(self) -> None:
        """Close the descriptors of this side."""


class EventBell:
    """A bell made of an eventfd (Linux)."""

    def __init__(self, fd: int | None = None) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) if fd is None else fd
        self._blocks = False

    def ring(self) -> None:
        """See `Bell.ring`."""
        os.eventfd_write(self._fd, 1)

    def silence(self) -> None:
        """See `Bell.silence`."""
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return

    def wait(self, timeout: float | None = None) -> None:
        """See `Bell.wait`. One call of the system where a poll and a read would be two."""
        if timeout is not None and not Waiter([self]).wait(timeout):
            return
        if not self._blocks:
            # It is one setting for both sides, but a ring waits for nobody in any case.
            os.set_blocking(self._fd, True)
            self._blocks = True
        # Unlike `eventfd_read` it goes on after a signal.
        os.read(self._fd, 8)

    def fileno(self) -> int:
        """See `Bell.fileno`."""
        return self._fd

    def close(self) -> None:
        """See `Bell.close`."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __reduce__(self) -> tuple[Any, ...]:
        """Pass the descriptor on; possible only while a process is being started."""
        return (_attach_event, (reduction.DupFd(self._fd),))


class PipeBell:
    """A bell made of a pipe: one byte a ring, of which the ringer never has more than a few under way."""

    def __init__(self, ends: tuple[Any, Any] | None = None) -> None:
        reader, writer = connection.Pipe(duplex=False) if ends is None else ends
        self._reader: Any = reader
        self._writer: Any = writer

    def ring(self) -> None:
        """See `Bell.ring`."""
        self._writer.send_bytes(b".")

    def silence(self) -> None:
        """See `Bell.silence`."""
        while self._reader.poll():
            self._reader.recv_bytes()

    def wait(self, timeout: float | None = None) -> None:
        """See `Bell.wait`."""
        self._reader.poll(timeout)
        self.silence()

    def fileno(self) -> int:
        """See `Bell.fileno`."""
        number: int = self._reader.fileno()
        return number

    def close(self) -> None:
        """See `Bell.close`."""
        self._reader.close()
        self._writer.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pass both ends on; possible only while a process is being started."""
        return (_attach_pipe, (self._reader, self._writer))

    @property
    def reader(self) -> Any:
        """The end to wait on, for `multiprocessing.connection.wait`."""
        return self._reader


def make_bell() -> EventBell | PipeBell:
    """Return a fresh bell of the best kind that the system has."""
    return EventBell() if hasattr(os, "eventfd") else PipeBell()


def _attach_event(handle: Any) -> EventBell:
    return EventBell(handle.detach())


def _attach_pipe(reader: Any, writer: Any) -> PipeBell:
    return PipeBell((reader, writer))


class Fence:
    """Keeps what is written before it from being seen after what is read or written behind it.

    Python has no memory barrier of its own, but taking and releasing a lock is one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self) -> None:
        """Stand between two accesses to shared memory."""
        with self._lock:
            pass


class Waiter:
    """Waits for any of several bells, connections and process sentinels."""

    def __init__(self, objects: list[Any]) -> None:
        self._poll: Any = select.poll() if hasattr(select, "poll") else None
        self._objects: dict[Any, Any] = {}
        for one in objects:
            self.add(one)

    def add(self, one: Any) -> None:
        """Wait for `one` as well."""
        if self._poll is None:
            self._objects[getattr(one, "reader", one)] = one
        else:
            number = one if isinstance(one, int) else one.fileno()
            self._objects[number] = one
            self._poll.register(number, select.POLLIN)

    def remove(self, one: Any) -> None:
        """Wait for `one` no longer; before it is closed."""
        if self._poll is None:
            del self._objects[getattr(one, "reader", one)]
        else:
            number = one if isinstance(one, int) else one.fileno()
            del self._objects[number]
            self._poll.unregister(number)

    def wait(self, timeout: float | None = None) -> list[Any]:
        """Block until one of them is ready, or for `timeout` seconds; return those that are."""
        if self._poll is None:
            return [self._objects[ready] for ready in connection.wait(list(self._objects), timeout)]
        return [self._objects[fd] for fd, _ in self._poll.poll(None if timeout is None else max(0.0, timeout) * 1000)]
