"""Ctrl-C at a chosen moment of what `run_to_end` does."""

from __future__ import annotations

import importlib
import signal
import threading

from helpers.patience import SLOW

# Not by an import statement: the package may have the function under this name.
MODULE = importlib.import_module("outrider.dataset.run_to_end")


class CtrlC:
    """Called in whatever thread, it interrupts the main thread, and returns when that waits for the step under way.

    Otherwise the thread might begin with many further steps before the main thread gets a processor.
    """

    def __init__(self, monkeypatch):
        self.felt = threading.Event()
        self._wait = MODULE._wait_for
        monkeypatch.setattr(MODULE, "_wait_for", self.wait_for)

    def wait_for(self, turn):
        self.felt.set()
        self._wait(turn)

    def __call__(self):
        self.felt.clear()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        if threading.current_thread() is not threading.main_thread():
            assert self.felt.wait(SLOW)
