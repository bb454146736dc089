"""Bookkeeping that Ctrl-C must not tear: it is held back for a moment and raised behind it."""

from __future__ import annotations

import importlib
import signal
import threading
from typing import Any

__all__ = ["undisturbed"]

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
