"""A worker thread of `Threads`, and the desk on which all workers of one driver put their results."""

from __future__ import annotations

import math
import os
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outrider.errors import EnvironmentFailure, EnvironmentTimeout, OutriderError
from outrider.vector.driver import Description, describe
from outrider.vector.group import IDLE, OPERATIONS, STARTING, EnvGroup, build, failure, quietly
from outrider.vector.inline import run as run_group
from outrider.vector.plan import EnvFactory
from outrider.vector.store import HEADER_WORDS, Store
from outrider.vector.worker import FINISHED, ISSUED, LANE, OPERATION, SINCE

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Answer", "Arrived", "Desk", "ThreadWorker"]


@dataclass(frozen=True, slots=True)
class Arrived:
    """Lanes of one request that one worker has finished.

    Attributes:
        number: of the request.
        lanes: range or int64 array [k] of lanes.
        ended: those whose step ended their episode.
        infos, final_infos: by lane.
    """

    number: int
    lanes: Any
    ended: list[int]
    infos: dict[int, dict[str, Any]]
    final_infos: dict[int, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one worker says to a question, or the failure with which it refuses."""

    worker: int
    content: Any


class Desk:
    """Where workers put what they have done, for the one thread that waits for it.

    What lies here stays until it is cleared away, so that a wait that was interrupted can be called again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # A lock that the workers release and the waiting thread acquires: Ctrl-C gets through to it, and no wake-up
        # is lost or counted.
        self._bell = threading.Lock()
        self._bell.acquire()
        self._results: list[tuple[Any, float]] = []
        self._weight = 0.0
        self._needed = math.inf

    def put(self, result: Any, weight: float) -> None:
        """Add a result; wake whoever waits if all results together weigh enough for it."""
        with self._lock:
            self._results.append((result, weight))
            self._weight += weight
            if self._weight >= self._needed and self._bell.locked():
                self._bell.release()

    def wait(self, needed: float, timeout: float | None) -> bool:
        """Wait until the results weigh `needed`, or for `timeout` seconds; return whether they did before."""
        with self._lock:
            self._needed = needed
            if self._weight >= needed:
                return True
        self._bell.acquire(timeout=-1 if timeout is None else min(timeout, threading.TIMEOUT_MAX))
        return False

    def results(self) -> list[Any]:
        """What lies there, in the order in which it came.

        Raises:
            EnvironmentFailure: one of them is such an error, or any other that a worker could not be without.
        """
        with self._lock:
            found = [result for result, _ in self._results]
        for result in found:
            if isinstance(result, BaseException):
                raise result
        return found

    def clear(self, taken: np.ndarray | None = None) -> None:
        """Remove everything, or the arrivals that were taken: those whose number stands in `taken`, by lane."""
        with self._lock:
            kept = [] if taken is None else [one for one in self._results if not _is_taken(one[0], taken)]
            self._results = kept
            self._weight = sum(weight for _, weight in kept)


def _is_taken(result: Any, taken: np.ndarray) -> bool:
    return type(result) is Arrived and bool(taken[result.lanes[0]] == result.number)


class ThreadWorker:
    """Builds, runs and closes the environments of consecutive lanes in a thread of its own.

    Jobs are numbered, and one that was given twice is done once. `header` has the words of a worker process's header
    that say what it is doing.
    """

    def __init__(self, index: int, lanes: range, desk: Desk, *, timed: bool) -> None:
        self.index = index
        self.lanes = lanes
        self.abandoned = False
        self.header: Any = memoryview(bytearray(HEADER_WORDS * 8)).cast("q")
        self.header[LANE], self.header[OPERATION] = lanes.start, STARTING
        self._note = self.header[LANE : SINCE + 1]
        self._desk = desk
        self._timed = timed
        self._inbox: queue.SimpleQueue[tuple[int, str, tuple[Any, ...]]] = queue.SimpleQueue()
        self._stopping = False
        self._envs: list[Any] = []
        self._group: EnvGroup | None = None
        self._failures: list[EnvironmentFailure] = []
        # A daemon: a call that never returns must not keep the interpreter from ending.
        self._thread = threading.Thread(target=self._serve, name=f"outrider-worker-{index}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def give(self, serial: int, kind: str, content: tuple[Any, ...]) -> None:
        """Give it a job; serial numbers increase."""
        self.header[ISSUED] = serial
        self._inbox.put((serial, kind, content))

    def stop(self) -> None:
        """Let it close its environments and end once its present job is done."""
        self._stopping = True
        self._inbox.put((0, "stop", ()))

    def join(self, timeout: float, patience: float) -> list[EnvironmentFailure]:
        """Wait for the end for `timeout` seconds; return what failed while closing.

        A thread that does not end by then is named in the errors and abandoned.
        """
        # A driver may be collected as garbage in whichever thread, and a thread may fail to start.
        if self.abandoned or self._thread.ident is None or self._thread is threading.current_thread():
            return []
        self._thread.join(timeout)
        if self._thread.is_alive():
            self.abandoned = True
            return [self.lateness(f"{patience:g} s after it was told to close")]
        return self._failures

    def lateness(self, when: str) -> EnvironmentTimeout:
        """Say what takes the thread so long."""
        lane, operation = self._doing()
        message = (
            f"lane {lane}, {operation}, thread {self._thread.name!r} of process {os.getpid()}: the call has not "
            f"returned {when}; the thread was abandoned, and closes its environments if it ever comes back"
        )
        return EnvironmentTimeout(message, lane=lane, operation=operation, pid=os.getpid())

    def _doing(self) -> tuple[int, str]:
        return int(self.header[LANE]), OPERATIONS[self.header[OPERATION]]

    def _serve(self) -> None:
        last = 0
        try:
            while not self._stopping:
                serial, kind, content = self._inbox.get()
                if kind == "stop":
                    return
                if serial > last:
                    last = serial
                    self._work(serial, kind, content)
        finally:
            try:
                self._failures += self._close()
            except BaseException as error:  # noqa: BLE001 - nobody else would hear of it
                self._failures.append(self._named(error))

    def _work(self, serial: int, kind: str, content: tuple[Any, ...]) -> None:
        try:
            result, weight = getattr(self, f"_do_{kind}")(*content)
        except OutriderError as error:
            result, weight = error, math.inf
        except BaseException as error:  # noqa: BLE001 - also a KeyboardInterrupt: Ctrl-C never ends up in a thread
            result, weight = self._named(error), math.inf
        self.header[OPERATION] = IDLE
        self.header[FINISHED] = serial
        if weight:
            self._desk.put(result, weight)

    def _named(self, error: BaseException) -> EnvironmentFailure:
        return failure(*self._doing(), error)

    def _do_build(self, factories: Sequence[EnvFactory]) -> tuple[Any, float]:
        self._envs = build(factories, self.lanes.start, self._note)
        described: Description = describe(self._envs, self.lanes.start)
        return Answer(self.index, described), 1

    def _do_store(self, store: Store, info_keys: tuple[str, ...]) -> tuple[Any, float]:
        self._group = EnvGroup(self._envs, self.lanes.start, store, info_keys, self._note, timed=self._timed)
        return Answer(self.index, None), 1

    def _do_resets(self, arguments: dict[int, tuple[int | None, dict[str, Any] | None]]) -> tuple[Any, float]:
        assert self._group is not None
        self._group.arrange_resets(arguments)
        return None, 0

    def _do_run(self, number: int, lanes: Any, rows: Any, op: Any, want: int) -> tuple[Any, float]:
        assert self._group is not None
        ended = run_group(self._group, lanes, rows, op, want)
        return Arrived(number, lanes, ended, *self._group.take_infos()), len(lanes)

    def _do_call(self, requests: list[tuple[int, str, str, tuple[Any, ...]]]) -> tuple[Any, float]:
        assert self._group is not None
        try:
            return Answer(self.index, [self._group.call(*request) for request in requests]), 1
        except EnvironmentFailure as error:
            return Answer(self.index, error), 1

    def _close(self) -> list[EnvironmentFailure]:
        if self._group is not None:
            return self._group.close()
        for env in self._envs:
            quietly(env.close)
        return []
