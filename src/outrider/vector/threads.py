"""Environments in threads of this process: many to a thread, rows written in place."""

from __future__ import annotations

import itertools
import os
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass
from typing import Any

import numpy as np

from outrider.errors import ClosedError, EnvironmentFailure
from outrider.memory.mapping import PrivateMapping
from outrider.vector.counts import arrivals, share_out
from outrider.vector.crew import CLOSING_TIME, FAILING_TIME, share
from outrider.vector.driver import Driver, Returned, one_description
from outrider.vector.plan import Envs, check_count, check_seconds
from outrider.vector.recovery import OnFailure, refuse_on_failure
from outrider.vector.store import Frame, Store, indexer, numbers_of
from outrider.vector.thread_worker import Arrived, Desk, ThreadWorker
from outrider.vector.watch import Late, Watch

__all__ = ["ThreadDriver", "Threads"]


@dataclass(frozen=True)
class Threads:
    """Run the environments in threads of this process, several to a thread.

    This pays where environments release the GIL while they work or wait (C++ simulators, sockets), and for all of them
    on free-threaded Python. Environments must not share what is not safe between threads. One that exits or is killed
    takes the process with it, and a call that never returns cannot be ended: its thread is named in the error and
    abandoned.

    Args:
        workers: how many threads; by default one per processor, at most one per environment.
        wait_for: how many lanes `recv` and a collector wait for, the first to finish; None, and the number of all: for
            all of them.
        step_timeout: seconds that one reset, step or other call of one environment may take; None: any time.
            Construction may take any time.
        on_failure: only "raise"; `Processes` can do otherwise.

    Raises:
        ConfigError: a bad count, time or choice.

    Example:
        >>> import outrider
        >>> with outrider.make_vec("CartPole-v1", 4, backend=Threads(workers=2)) as envs:
        ...     obs, _ = envs.reset(seed=0)
        >>> obs.shape
        (4, 4)
    """

    workers: int | None = None
    wait_for: int | None = None
    step_timeout: float | None = None
    on_failure: InitVar[OnFailure] = "raise"

    def __post_init__(self, on_failure: OnFailure) -> None:
        refuse_on_failure(on_failure, "Threads")
        for name in ("workers", "wait_for"):
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name)
        if self.step_timeout is not None:
            check_seconds(self.step_timeout, "step_timeout")

    def start(self, plan: Envs) -> ThreadDriver:
        """Start the threads and let them build the environments of `plan`."""
        workers = share_out(self.workers, plan.num_envs, plan.num_envs, "Threads")
        wait_for = arrivals(self.wait_for, plan.num_envs, "Threads")
        driver = ThreadDriver(share(plan.num_envs, workers), wait_for, self.step_timeout)
        try:
            driver.build(plan)
        except BaseException:
            driver.fail()
            raise
        return driver


class ThreadDriver(Driver):
    """Gives worker threads jobs and waits at their desk.

    For each lane there are two numbers: of the last request that it was given, and of the last whose result was
    returned. It is under way where they differ.
    """

    def __init__(self, shares: Sequence[range], wait_for: int | None, step_timeout: float | None) -> None:
        self.num_envs = shares[-1].stop
        self.wait_for = wait_for
        self._desk = Desk()
        timed = step_timeout is not None
        self._staff = [ThreadWorker(index, lanes, self._desk, timed=timed) for index, lanes in enumerate(shares)]
        self._watch = None if step_timeout is None else Watch(step_timeout, [worker.header for worker in self._staff])
        self._owner = np.repeat(np.arange(len(shares)), [len(lanes) for lanes in shares])
        self._request = np.zeros(self.num_envs, np.int64)
        self._taken = np.zeros(self.num_envs, np.int64)
        self._numbers = itertools.count(1)
        # The last request that was one for all lanes, and for consecutive rows.
        self._whole = 0
        self._serials = itertools.count(1)
        self._jobs: deque[tuple[int, int, str, tuple[Any, ...]]] = deque()
        self._closed = False
        self._closer = weakref.finalize(self, _close_forgotten, self._staff, os.getpid())

    def build(self, plan: Envs) -> None:
        """Build the environments and divide the memory that they write to.

        Raises:
            ConfigError: their spaces differ or cannot be stored.
            EnvironmentFailure: one could not be made.
        """
        for worker in self._staff:
            worker.start()
        everyone = range(len(self._staff))
        found = self._ask(
            {index: ("build", [plan.factories[lane] for lane in self._staff[index].lanes]) for index in everyone}
        )
        firsts = [worker.lanes.start for worker in self._staff]
        self.description = one_description([(firsts[index], found[index]) for index in everyone])
        mapping = PrivateMapping()
        described = self.description
        spaces = described.space, described.action_space
        frame = Frame.divide(mapping, self.num_envs, *spaces, described.reward)
        self.store = Store(mapping, frame)
        self._ask(dict.fromkeys(everyone, ("store", self.store, plan.info_keys)))

    # -- stepping ----------------------------------------------------------------------------------------------------

    def post(self, lanes: Any, rows: Any, op: Any, want: int) -> None:
        """See `Driver.post`."""
        self._check_open()
        number = next(self._numbers)
        if type(lanes) is range and len(lanes) == self.num_envs and type(rows) is range:
            self._whole = number
        parts = self._by_worker if self.wait_for is None else self._by_lane
        jobs = [(next(self._serials), worker, "run", (number, *part, want)) for worker, *part in parts(lanes, rows, op)]
        self._jobs.extend(jobs)
        self._hand_out()

    def _by_worker(self, lanes: Any, rows: Any, op: Any) -> Iterator[tuple[int, Any, Any, Any]]:
        """A request as one job for each worker: (worker, lanes, rows, op)."""
        if type(lanes) is range and len(lanes) == self.num_envs and type(rows) is range and type(op) is int:
            for worker in self._staff:
                mine = worker.lanes
                yield worker.index, mine, range(rows.start + mine.start, rows.start + mine.stop), op
            return
        lanes, rows = numbers_of(lanes), numbers_of(rows)
        owners = self._owner[lanes]
        for index in np.unique(owners).tolist():
            chosen = owners == index
            yield index, lanes[chosen], rows[chosen], op if type(op) is int else op[chosen]

    def _by_lane(self, lanes: Any, rows: Any, op: Any) -> Iterator[tuple[int, Any, Any, Any]]:
        """The same as one job for each lane."""
        ops = np.broadcast_to(op, len(lanes)).tolist()
        owners = self._owner[indexer(lanes)].tolist()
        for index, lane, row, one in zip(
            owners, np.asarray(lanes).tolist(), np.asarray(rows).tolist(), ops, strict=True
        ):
            yield index, range(lane, lane + 1), range(row, row + 1), one

    def _hand_out(self) -> None:
        """Give the jobs to the workers. After an interrupt the next call goes on; what is given twice is done once."""
        while self._jobs:
            serial, index, kind, content = self._jobs[0]
            if kind == "run":
                number, lanes, *_ = content
                self._request[indexer(lanes)] = number
            if self._watch is not None:
                self._watch.asked(index)
            self._staff[index].give(serial, kind, content)
            self._jobs.popleft()

    def wait(self, least: int | None = None) -> Returned:
        """See `Driver.wait`. One that was interrupted can be called again."""
        self._check_open()
        self._hand_out()
        self._desk.clear(self._taken)
        away = int(np.count_nonzero(self._request != self._taken))
        found: list[Arrived] = self._wait_for(away if least is None else min(least, away))
        if not found:
            return Returned(range(0), [])
        found.sort(key=lambda one: (one.number, one.lanes[0]))
        lanes = np.concatenate([numbers_of(one.lanes) for one in found])
        ended = [lane for one in found for lane in one.ended]
        infos = {lane: info for one in found for lane, info in one.infos.items()}
        final_infos = {lane: info for one in found for lane, info in one.final_infos.items()}
        whole = len(lanes) == self.num_envs and found[0].number == self._whole
        # From here on they are no longer under way; what lies on the desk is known by its number.
        self._taken[lanes] = self._request[lanes]
        self._desk.clear(self._taken)
        return Returned(range(self.num_envs) if whole else lanes, ended, infos, final_infos)

    def _wait_for(self, weight: int) -> list[Any]:
        """Wait until the results weigh so much; return them.

        Raises:
            EnvironmentFailure: an environment failed, or took too long. All are closed then.
        """
        try:
            if self._watch is not None:
                self._end_late(self._watch.glance())
            while not self._desk.wait(weight, None if self._watch is None else self._watch.remaining()):
                if self._watch is not None:
                    self._end_late(self._watch.look())
            return self._desk.results()
        except Exception:
            self.fail()
            raise

    def _end_late(self, late: Late | None) -> None:
        if late is not None:
            worker = self._staff[late.index]
            error = worker.lateness(f"after {late.seconds:.1f} s (step_timeout={late.limit:g})")
            worker.abandoned = True
            raise error

    # -- questions ---------------------------------------------------------------------------------------------------

    def arrange_resets(self, arguments: dict[int, tuple[int | None, dict[str, Any] | None]]) -> None:
        """See `Driver.arrange_resets`."""
        self._check_open()
        for worker in self._staff:
            mine = {lane: arguments[lane] for lane in worker.lanes if lane in arguments}
            if mine:
                self._jobs.append((next(self._serials), worker.index, "resets", (mine,)))
        self._hand_out()

    def call(self, lanes: Sequence[int], operation: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """See `Driver.call`."""
        self._check_open()
        requests: dict[int, list[Any]] = {}
        for lane, given in zip(lanes, arguments, strict=True):
            requests.setdefault(int(self._owner[lane]), []).append((lane, operation, name, given))
        try:
            answers = self._ask({index: ("call", some) for index, some in requests.items()})
        except BaseException:
            self.fail()
            raise
        found: dict[int, Any] = {}
        for index, content in answers.items():
            if isinstance(content, EnvironmentFailure):
                raise content
            found.update(zip([lane for lane, *_ in requests[index]], content, strict=True))
        return [found[lane] for lane in lanes]

    def _ask(self, questions: dict[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Give each of these workers a job that it answers; nothing else is under way."""
        for index, (kind, *content) in questions.items():
            self._jobs.append((next(self._serials), index, kind, tuple(content)))
        self._desk.clear()
        self._hand_out()
        answers = {answer.worker: answer.content for answer in self._wait_for(len(questions))}
        self._desk.clear()
        return {index: answers[index] for index in questions}

    # -- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> list[EnvironmentFailure]:
        """See `Driver.close`."""
        busy = (self._request != self._taken).any()
        return self._dismiss(FAILING_TIME if busy else CLOSING_TIME)

    def fail(self) -> None:
        """Close after a failure, when somebody waits for the error."""
        self._dismiss(FAILING_TIME)

    def _dismiss(self, patience: float) -> list[EnvironmentFailure]:
        self._closed = True
        if not self._closer.alive:
            return []
        failures = dismiss(self._staff, patience)
        self._closer.detach()
        return failures

    @property
    def is_open(self) -> bool:
        """See `Driver.is_open`."""
        return not self._closed

    def _check_open(self) -> None:
        if self._closed:
            msg = "the environments are closed; make new ones with make_vec"
            raise ClosedError(msg)


def dismiss(staff: Sequence[ThreadWorker], patience: float) -> list[EnvironmentFailure]:
    """Tell all workers to close their environments and end, wait for `patience` seconds, return what failed."""
    for worker in staff:
        worker.stop()
    deadline = time.monotonic() + patience
    return [failure for worker in staff for failure in worker.join(max(0.0, deadline - time.monotonic()), patience)]


def _close_forgotten(staff: Sequence[ThreadWorker], pid: int) -> None:
    """Close environments that nobody closed, but not in a process forked from theirs, which has no such threads."""
    if os.getpid() == pid:
        dismiss(staff, FAILING_TIME)
