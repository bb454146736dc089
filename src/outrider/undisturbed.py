"""Bookkeeping that Ctrl-C must not tear: it is held back for a moment and raised behind it."""

from __future__ import annotations

import importlib
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Calm", "undisturbed"]

try:
    # What is behind the signal module, whose own functions spend ten times as long on enumerations.
    _c_signal: Any = importlib.import_module("_signal")
except ImportError:
    _c_signal = signal

_install, _installed = _c_signal.signal, _c_signal.getsignal


class undisturbed:  # noqa: N801 - a context manager that is used like a function
    """Hold back SIGINT until the end of the block, which has to be short. In other threads than the main one: nothing.

    Example:
        >>> with undisturbed():
        ...     pass
    """

    __slots__ = ("_handler", "_held")

    def __enter__(self) -> None:
        self._held: list[tuple[Any, ...]] = []
        self._handler = None
        if threading.current_thread() is threading.main_thread():
            handler = _installed(signal.SIGINT)
            if callable(handler):
                self._handler = handler
                _install(signal.SIGINT, self._hold)

    def _hold(self, *arguments: Any) -> None:
        self._held.append(arguments)

    def __exit__(self, *exception: object) -> None:
        if self._handler is not None:
            _install(signal.SIGINT, self._handler)
            if self._held:
                self._handler(*self._held[0])


class Calm:
    """The same for a stretch of work with many such blocks, which is told of its beginning and end.

    What is installed for the whole stretch need not be for each block, at which it costs ten times as much.

    Example:
        >>> calm = Calm()
        >>> with calm.stretch():
        ...     for _ in range(3):
        ...         with calm:
        ...             pass
    """

    __slots__ = ("_handler", "_held", "_holds", "_on")

    def __init__(self) -> None:
        self._handler: Any = None
        self._held: list[tuple[Any, ...]] = []
        self._holds = self._on = False

    @contextmanager
    def stretch(self) -> Iterator[None]:
        """Around blocks; in other threads than the main one, and inside another stretch, nothing."""
        handler = _installed(signal.SIGINT)
        in_main = threading.current_thread() is threading.main_thread()
        if self._on or not in_main or not callable(handler):
            yield
            return
        try:
            self._on, self._handler = True, handler
            _install(signal.SIGINT, self._come)
            yield
        finally:
            # Whoever has put another handler there meanwhile wants to have that one.
            if _installed(signal.SIGINT) == self._come:
                _install(signal.SIGINT, handler)
            self._on = False

    def _come(self, *arguments: Any) -> None:
        if self._holds:
            self._held.append(arguments)
        else:
            self._handler(*arguments)

    def __enter__(self) -> None:
        self._holds = True

    def __exit__(self, *exception: object) -> None:
        self._holds = False
        if self._held:
            arguments, self._held = self._held[0], []
            self._handler(*arguments)
