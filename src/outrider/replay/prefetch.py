"""Batches that are assembled ahead, in a thread."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

from outrider.errors import ClosedError

__all__ = ["Batches"]


class Batches(Iterator[Any]):
    """An endless iterator over batches, some of which are assembled ahead; a context manager.

    Its thread ends when the iterator is closed or nobody has it any more. A batch that was assembled before the buffer
    was cleared is not returned. Where assembling has failed, it is tried again as soon as somebody asks for that batch,
    as the buffer may have been filled since; what that raises is raised by `next`, and the one behind it tries again.

    Args:
        draw: assembles a batch; returns it with the number of times that the buffer was cleared before.
        cleared: that number at present.
        ahead: how many batches are assembled ahead, 1 or more.
    """

    def __init__(self, draw: Callable[[], tuple[int, Any]], cleared: Callable[[], int], ahead: int) -> None:
        self._state = _State(draw, ahead)
        self._cleared = cleared
        self._thread = threading.Thread(target=self._state.run, name="outrider-batches", daemon=True)
        # The thread knows the state alone, so that this object can die.
        self._finalizer = weakref.finalize(self, self._state.close)
        self._finalizer.atexit = False
        self._thread.start()

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            ClosedError: the iterator was closed.
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
        if threading.current_thread() is not self._thread:
            self._thread.join()

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

    def run(self) -> None:
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

    def close(self) -> None:
        """Let the thread end."""
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()
