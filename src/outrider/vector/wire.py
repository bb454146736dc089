"""The parent's end of a connection to a worker: while it writes it goes on reading."""

from __future__ import annotations

import os
import select
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

__all__ = ["Wire"]

LARGE = 0x7FFFFFFF
"""Length of the messages that `multiprocessing` announces in a longer header."""

AT_ONCE: int | None = getattr(socket, "MSG_DONTWAIT", None)
"""Lets one write return where it would block; systems without it write as `multiprocessing` does."""


class Wire:
    """Messages to and from a worker. If both write a long one at the same time, neither waits for the other for ever.

    Args:
        connection: of `multiprocessing`; whoever waits for messages waits for this, and looks at `has_read`.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._read: deque[bytes] = deque()

    @property
    def has_read(self) -> bool:
        """Whether messages were read while one was written, and nobody has received them."""
        return bool(self._read)

    def poll(self) -> bool:
        """Whether there is a message."""
        return bool(self._read) or self.connection.poll()

    def receive(self) -> bytes:
        """Return the next message, and wait for it.

        Raises:
            EOFError, OSError: the other side has closed its end.
        """
        return self._read.popleft() if self._read else self.connection.recv_bytes()

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
                    rest = rest[line.send(rest, AT_ONCE) :]
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
            self._read.append(self.connection.recv_bytes())
        elif sentinel in ready:
            raise BrokenPipeError
