"""The parent's end of a connection to a worker: while it writes it goes on reading, and Ctrl-C tears no message."""

from __future__ import annotations

import os
import select
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from outrider.undisturbed import undisturbed

__all__ = ["Wire"]

LARGE = 0x7FFFFFFF
"""Length of the messages that `multiprocessing` announces in a longer header."""

CHUNK, MOST = 1 << 16, 1 << 20
"""Bytes that are read at once, and where it is known that so many are missing."""

AT_ONCE: int | None = getattr(socket, "MSG_DONTWAIT", None)
"""Lets one write return where it would block; systems without it write as `multiprocessing` does."""


class Wire:
    """Messages to and from a worker. If both write a long one at the same time, neither waits for the other for ever.

    A message is taken in as it arrives. If Ctrl-C comes meanwhile, the next call goes on where it was.

    Args:
        connection: of `multiprocessing`; whoever waits for messages waits for this, and looks at `has_read`.

    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        # Whether a message was broken off, on the way here or there.
        self._torn = [False, False]
        # What has arrived of the next message, and of those behind it; whole messages that nobody has done with.
        self._arrived = bytearray()
        self._read: deque[bytes] = deque()
        self._ready: Any = None
        if AT_ONCE is not None:
            self._ready = select.poll()
            self._ready.register(connection.fileno(), select.POLLIN)

    @property
    def torn(self) -> bool:
        """Whether a message was broken off in such a way that nobody could make sense of what follows it."""
        return any(self._torn)

    @property
    def has_read(self) -> bool:
        """Whether messages were read of which no descriptor tells any more."""
        return bool(self._read)

    def poll(self) -> bool:
        """Whether there is a whole message; takes in what has arrived of one, and waits for nothing.

        Raises:
            EOFError, OSError: the other side has closed its end.
        """
        if self._ready is None:
            return bool(self._read) or self.connection.poll()
        while not self._read and self._ready.poll(0):
            self._take_in()
        return bool(self._read)

    def receive(self) -> bytes:
        """Return the next message, and wait for it. It stays the next one until `done` is called.

        Raises:
            EOFError, OSError: the other side has closed its end.
        """
        while not self._read:
            if self._ready is not None:
                self._ready.poll()
            self._take_in()
        return self._read[0]

    def done(self) -> None:
        """Forget the message that was received last."""
        self._read.popleft()

    def _take_in(self) -> None:
        """Read what is there of messages; something is."""
        with undisturbed():
            if self._ready is None:
                # There are no pieces of messages here. A worker that dies ends this, and nobody can stop one.
                self._read.append(self.connection.recv_bytes())
                return
            self._torn[0] = True
            data = os.read(self.connection.fileno(), min(max(CHUNK, self._missing()), MOST))
            self._arrived += data
            while not self._missing():
                self._split()
            self._torn[0] = False
        if not data:
            raise EOFError

    def _header(self) -> tuple[int, int]:
        """Length of the next message's header, and of the message."""
        if len(self._arrived) < 4:
            return 4, 0
        (size,) = struct.unpack_from("!i", self._arrived)
        if size != -1:
            return 4, size
        return (12, *struct.unpack_from("!Q", self._arrived, 4)) if len(self._arrived) >= 12 else (12, 0)

    def _missing(self) -> int:
        """How many bytes of the next message have not arrived, as far as that is known."""
        return max(0, sum(self._header()) - len(self._arrived))

    def _split(self) -> None:
        """Take the next message, which is complete, off what has arrived."""
        start, size = self._header()
        self._read.append(bytes(memoryview(self._arrived)[start : start + size]))
        del self._arrived[: start + size]

    def send(self, data: bytes, sentinel: Any, patience: Callable[[], float | None] | None) -> None:
        """Write a message.

        Args:
            data: what to write.
            sentinel: ready when the worker has ended.
            patience: called whenever the worker takes nothing in; returns for how many seconds to wait before it is
                called again, or raises. None: the message is given up instead of waiting.

        Raises:
            OSError, EOFError: the worker has gone, or the message was given up.
        """
        if AT_ONCE is None:
            self.connection.send_bytes(data)
            return
        header = struct.pack("!i", len(data)) if len(data) <= LARGE else struct.pack("!iQ", -1, len(data))
        # The descriptor is duplicated, so that closing the socket leaves the connection open.
        with socket.socket(fileno=os.dup(self.connection.fileno())) as line:
            rest = memoryview(header + data)
            while rest:
                try:
                    with undisturbed():
                        rest = rest[line.send(rest, AT_ONCE) :]
                        self._torn[1] = bool(rest)
                except BlockingIOError:
                    if patience is None:
                        raise
                    self._make_room(sentinel, patience())

    def _make_room(self, sentinel: Any, seconds: float | None) -> None:
        """Wait until the worker has read something, and read what it says meanwhile."""
        poll = select.poll()
        number = self.connection.fileno()
        poll.register(number, select.POLLIN | select.POLLOUT)
        poll.register(sentinel, select.POLLIN)
        ready = dict(poll.poll(None if seconds is None else seconds * 1000))
        if ready.get(number, 0) & select.POLLIN:
            self._take_in()
        elif sentinel in ready:
            raise BrokenPipeError
