"""Where a worker process begins. Only the standard library is imported here, so that thread limits come in time."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

__all__ = ["WorkerStart", "main"]

THREAD_SETTINGS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


@dataclass(frozen=True)
class WorkerStart:
    """What a worker is given when it is started.

    Attributes:
        index: number of the worker.
        first: its first lane.
        payload: what `run` needs, cloudpickled.
        mapping: the memory that all share.
        inbox: rung by the parent.
        outbox: rung by the worker.
        connection: for messages, in both directions.
        run: the worker's main function, by module and name, imported once the threads are limited.
        delay: seconds to wait before that.
    """

    index: int
    first: int
    payload: bytes
    mapping: Any
    inbox: Any
    outbox: Any
    connection: Any
    run: tuple[str, str]
    delay: float = 0.0


def main(start: WorkerStart) -> None:
    """Limit numeric threads, then run the worker."""
    # What a fork has of its parent must not be ended here: EnvPool's pools, for one, wait for threads that it lacks.
    gc.freeze()
    # A handler and not SIG_IGN, which children of environments would inherit. The parent decides about Ctrl-C.
    signal.signal(signal.SIGINT, lambda *_: None)
    if start.delay:
        hold_back(start.delay)
    limit_threads()
    module, name = start.run
    __import__(module)
    run: Callable[[WorkerStart], None] = getattr(sys.modules[module], name)
    run(start)


def hold_back(seconds: float) -> None:
    """Wait, and end at once if the parent goes. Nothing has been built, so that the parent can end this process."""
    parent: Any = multiprocessing.parent_process()
    signs = [parent.sentinel]
    # Siblings that were forked later hold the other end of the sentinel: a pidfd does not wait for them.
    with contextlib.suppress(AttributeError, OSError):
        signs.append(os.pidfd_open(parent.pid))
    if connection.wait(signs, seconds):
        os._exit(1)
    for fd in signs[1:]:
        os.close(fd)


def limit_threads() -> None:
    """Let numeric libraries use one thread: those not yet loaded read the environment, the others are told.

    A setting that the user made in the environment is kept.
    """
    if any(name in os.environ for name in THREAD_SETTINGS):
        return
    for name in THREAD_SETTINGS:
        os.environ[name] = "1"
    if "numpy" in sys.modules:
        import threadpoolctl

        threadpoolctl.threadpool_limits(1)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
