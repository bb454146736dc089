"""Bookkeeping that Ctrl-C must not tear: it is held back for a moment and raised behind it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["undisturbed"]


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold back SIGINT until the end of the block, which has to be short. In other threads than the main one: nothing.

    Example:
        >>> with undisturbed():
        ...     pass
    """
    handler: Any = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    held: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *arguments: held.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if held:
            handler(*held[0])
