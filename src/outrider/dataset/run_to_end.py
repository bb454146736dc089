"""Writing that Ctrl-C stops between two steps, never within one.

zarr writes in an event loop in a thread of its own while its caller waits. Ctrl-C ends the waiting of the main thread
but not the write, which could land on the disk later, over whatever was written meanwhile.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable

__all__ = ["run_to_end"]


def run_to_end(steps: Iterable[object]) -> None:
    """Go through `steps` in a thread of its own, where no signal strikes; nothing of it goes on after this returns.

    Args:
        steps: each item is the result of a step that is done; what Ctrl-C finds under way is done to its end.

    Raises:
        Exception: what a step raised; no further step was begun.
        KeyboardInterrupt: or whatever else a signal handler raises; the same.
    """
    turn = threading.Lock()
    cancelled = threading.Event()
    failures: list[BaseException] = []

    def go() -> None:
        with turn:
            iterator = iter(steps)
            try:
                while not cancelled.is_set():
                    next(iterator)
            except StopIteration:
                pass
            except BaseException as error:  # noqa: BLE001 - it is raised below, where somebody waits for it
                failures.append(error)

    thread = threading.Thread(target=go, name="outrider-run-to-end")
    try:
        thread.start()
        thread.join()
    except BaseException:
        # From here on the thread either is within its last step or, even if it has hardly started, takes none.
        cancelled.set()
        _wait_for(turn)
        raise
    if failures:
        raise failures[0]


def _wait_for(turn: threading.Lock) -> None:
    """Wait until nobody has the turn. A further Ctrl-C changes nothing: the first is on its way."""
    while True:
        with contextlib.suppress(BaseException), turn:
            return
