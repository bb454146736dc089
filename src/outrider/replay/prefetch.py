"""Batches that are assembled ahead, in a thread."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, Self

from outrider.errors import ClosedError, OutriderError, explain
from outrider.records import arrays
from outrider.replay.locks import Lock, taken
from outrider.replay.settings import whole_number

__all__ = ["Batches", "batches_of"]

EXIT_TIME = 10.0
"""Seconds for which the end of the program waits for a batch that is being assembled."""


class Sampled(Protocol):
    """What batches can be drawn from: buffers and mixes."""

    @property
    def locks(self) -> Iterable[Lock]:
        """Whoever has all of these is alone with it."""

    @property
    def clears(self) -> int:
        """How many times it was cleared."""

    def sample(self, count: int) -> Any:
        """Draw samples."""


def batches_of(source: Sampled, size: int, prefetch: int, device: Any) -> Batches:
    """Batches of `size` samples, `prefetch` of them assembled ahead, as arrays, or as tensors on a device.

    Raises:
        ConfigError: one of the numbers is none.
    """
    size = whole_number(size, 1, "batches(size)")
    ahead = whole_number(prefetch, 1, "batches(prefetch)")

    def draw() -> tuple[int, Any]:
        with taken(source.locks):
            number, batch = source.clears, source.sample(size)
        if device is not None:
            batch = arrays.converter().through_pinned_memory(batch.torch(), device)
        return number, batch

    return Batches(draw, lambda: source.clears, ahead)


class Batches(Iterator[Any]):
    """An endless iterator over batches, some of which are assembled ahead; a context manager.

    Its thread ends when the iterator is closed, nobody has it any more, or the program ends. A batch that was assembled
    before the buffer was cleared is not returned. Where assembling has failed, it is tried again as soon as somebody
    asks for that batch, as the buffer may have been filled since; what that raises is raised by `next`, and the one
    behind it tries again. A process that was forked has no such thread: it needs batches of its own.

    Args:
        draw: assembles a batch; returns it with the number of times that the buffer was cleared before.
        cleared: that number at present.
        ahead: how many batches are assembled ahead, 1 or more.
    """

    def __init__(self, draw: Callable[[], tuple[int, Any]], cleared: Callable[[], int], ahead: int) -> None:
        self._state = _State(draw, ahead)
        self._cleared = cleared
        # The thread knows the state alone, so that this object can die.
        self._finalizer = weakref.finalize(self, self._state.close)
        self._finalizer.atexit = False
        self._state.start()

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            ClosedError: the iterator was closed.
            OutriderError: another process made it.
        """
        while True:
            number, batch, error = self._state.take()
            if error is not None:
                raise error
            if number == self._cleared():
                return batch

    def close(self) -> None:
        """End the thread; batches that were assembled and not returned are dropped."""
        self._finalizer()
        self._state.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Failure(NamedTuple):
    """What assembling a batch has raised, and how many had been asked for when it began."""

    error: BaseException
    asked: int


class _State:
    """What the thread and the iterator share."""

    def __init__(self, draw: Callable[[], tuple[int, Any]], ahead: int) -> None:
        self._draw = draw
        self._ahead = ahead
        self._ready: deque[tuple[int, Any, _Failure | None]] = deque()
        # How many batches have been asked for.
        self._asked = 0
        # Reentrant: the iterator may die in a garbage collection of the thread that holds it.
        self._changed = threading.Condition()
        self._closed = False
        # A child that was forked has no such thread, and whoever held the condition then holds it there for ever.
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="outrider-batches", daemon=True)

    def start(self) -> None:
        """Begin to assemble batches."""
        atexit.register(self._end)
        self._thread.start()

    def _run(self) -> None:
        """Assemble batches until closed."""
        while self._wait_for_room():
            item: tuple[int, Any, _Failure | None]
            asked = self._asked
            try:
                item = (*self._draw(), None)
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever asks for the next batch
                item = (0, None, _Failure(error, asked))
            with self._changed:
                self._ready.append(item)
                self._changed.notify_all()

    def _wait_for_room(self) -> bool:
        with self._changed:
            # After an error nothing is tried until somebody has heard of it.
            self._changed.wait_for(
                lambda: self._closed or (len(self._ready) < self._ahead and not (self._ready and self._ready[-1][2]))
            )
            return not self._closed

    def take(self) -> tuple[int, Any, BaseException | None]:
        """Wait for the oldest batch that is ready, and remove it; or for what its assembling has raised."""
        if self._is_elsewhere:
            raise OutriderError(
                explain(
                    expected="batches of this process",
                    found=f"those of process {self._pid}, of which this one is a fork",
                    where="next(batches)",
                    fix="make them where they are used, with replay.batches(size)",
                )
            )
        with self._changed:
            self._asked += 1
            while True:
                self._changed.wait_for(lambda: self._closed or self._ready)
                if self._closed:
                    msg = "the batches are closed; ask the buffer for new ones with replay.batches(size)"
                    raise ClosedError(msg)
                number, batch, failure = self._ready.popleft()
                self._changed.notify_all()
                if failure is None:
                    return number, batch, None
                if failure.asked == self._asked:
                    return number, batch, failure.error

    @property
    def _is_elsewhere(self) -> bool:
        """Whether another process made it."""
        return os.getpid() != self._pid

    def close(self) -> None:
        """Let the thread end."""
        atexit.unregister(self._end)
        if self._is_elsewhere:
            return
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended."""
        if not self._is_elsewhere and threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _end(self) -> None:
        """The program ends: a thread that still runs when the interpreter is taken apart may crash it."""
        self.close()
        self.join(EXIT_TIME)
