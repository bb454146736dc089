"""Environments in worker processes: many to a worker, rows written into shared memory, one wake-up a worker a step."""

from __future__ import annotations

import multiprocessing
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import util
from typing import Any

import numpy as np

from outrider.errors import ClosedError, ConfigError, EnvironmentFailure, explain
from outrider.memory.mapping import shared_mapping
from outrider.undisturbed import undisturbed
from outrider.vector.bells import Fence
from outrider.vector.counts import arrivals, share_out
from outrider.vector.crew import FAILING_TIME, Crew, packed, share
from outrider.vector.driver import Description, Driver, Returned, one_description
from outrider.vector.plan import Envs, check_count, check_seconds
from outrider.vector.recovery import Drop, OnFailure, Restart, check_on_failure
from outrider.vector.store import HEADER_WORDS, MOST_WORKERS, Frame, Store, headers
from outrider.vector.watch import Watch
from outrider.vector.worker import DOZES, ENDED, FINISHED, ISSUED, OP, PARENT_DOZES, ROW, TURNS, WANT, Job

__all__ = ["ProcessDriver", "Processes", "hire", "in_order", "start_context"]


@dataclass(frozen=True)
class Processes:
    """Run the environments in worker processes, several to a worker.

    What they return is shared memory: a process that is forked from this one (a worker of a PyTorch DataLoader, say)
    and writes to a rollout changes it here, too.

    Args:
        workers: how many; by default one per processor, at most one per environment.
        start_method: "forkserver", "spawn" or "fork". By default forkserver where the system has it, because a fork of
            a process with threads (PyTorch has some) can deadlock, and spawn elsewhere.
        wait_for: how many lanes `recv` and a collector wait for, the first to finish; None, and the number of all: for
            all of them. Workers then answer for each lane by itself, which costs some microseconds a lane.
        step_timeout: seconds that one reset, step or other call of one environment may take; None: any time. One that
            takes longer is an `EnvironmentTimeout`, and its worker is killed. Construction may take any time: it may
            have to compile or download something.
        on_failure: what becomes of an environment that fails in a reset or a step: "raise" ends all of them with an
            `EnvironmentFailure`, `Restart(...)` makes it anew, `Drop()` goes on without it. The latter two answer for
            each lane by itself, like `wait_for`.

    Raises:
        ConfigError: a bad count, time or choice, or a start method that the system does not have.
    """

    workers: int | None = None
    start_method: str | None = None
    wait_for: int | None = None
    step_timeout: float | None = None
    on_failure: OnFailure = "raise"

    def __post_init__(self) -> None:
        if self.workers is not None:
            check_count(self.workers, "workers")
        if self.wait_for is not None:
            check_count(self.wait_for, "wait_for")
        if self.step_timeout is not None:
            check_seconds(self.step_timeout, "step_timeout")
        check_on_failure(self.on_failure)
        start_context(self.start_method)

    def start(self, plan: Envs) -> ProcessDriver:
        """Start the workers and let them build the environments of `plan`."""
        spin = can_spin(self.count(plan.num_envs))
        least = arrivals(self.wait_for, plan.num_envs, "Processes")
        if isinstance(self.on_failure, Restart):
            from outrider.vector.recovery_driver import RUN, RestartingDriver
            from outrider.vector.recovery_server import Terms

            terms = Terms(spin, plan.factories, self.on_failure)
            hired = hire(plan, self, RUN, terms)
            return RestartingDriver(*hired, self.step_timeout, wait_for=least, plan=plan, terms=terms)
        if least is None and self.on_failure == "raise":
            return ProcessDriver(*hire(plan, self, ("outrider.vector.worker", "run"), spin), self.step_timeout)
        from outrider.vector.finishers import FirstFinishers

        hired = hire(plan, self, ("outrider.vector.lane_server", "run"), spin)
        if isinstance(self.on_failure, Drop):
            from outrider.vector.recovery_driver import DroppingDriver

            return DroppingDriver(*hired, self.step_timeout, wait_for=least)
        return FirstFinishers(*hired, self.step_timeout, wait_for=least)

    def count(self, num_envs: int) -> int:
        """How many workers `num_envs` environments get."""
        return share_out(self.workers, num_envs, MOST_WORKERS, "Processes")


def hire(plan: Envs, backend: Processes, run: tuple[str, str], rest: Any) -> tuple[Crew, Description, Store]:
    """Start workers that build the environments of `plan` and then run a function; divide the memory they share.

    Args:
        plan: the environments.
        backend: how many workers, and how they are started.
        run: module and name of what a worker runs; see `outrider.vector.worker.host`.
        rest: what it gets beside its environments.
    """
    packed((plan.factories, rest), range(plan.num_envs))  # refused before anything is started
    crew = Crew(shared_mapping(), start_context(backend.start_method))
    try:
        for lanes in share(plan.num_envs, backend.count(plan.num_envs)):
            factories = [plan.factories[lane] for lane in lanes]
            crew.start(lanes, run, Job(factories, plan.info_keys, backend.step_timeout is not None, rest))
        described = one_description([(worker.lanes.start, worker.expect("description")) for worker in crew.members])
        spaces = described.space, described.action_space
        frame = Frame.divide(crew.mapping, plan.num_envs, *spaces, described.reward)
        for worker in crew.members:
            worker.send(frame)
        if not isinstance(backend.on_failure, Restart):
            crew.mapping.seal()
        return crew, described, Store(crew.mapping, frame)
    except BaseException:
        crew.close(FAILING_TIME)
        raise


def start_context(method: str | None) -> Any:
    """Return the multiprocessing context of a start method.

    Raises:
        ConfigError: the system does not have it.
    """
    methods = multiprocessing.get_all_start_methods()
    if method is None:
        method = "forkserver" if "forkserver" in methods else "spawn"
    if method not in methods:
        raise ConfigError(
            explain(expected=f"one of {methods}", found=repr(method), where="start_method", fix="choose one of those")
        )
    return multiprocessing.get_context(method)


def can_spin(workers: int) -> bool:
    """Whether looking a few times before blocking pays: a processor for each, and stores that are seen in order."""
    return in_order() and sys.platform == "linux" and workers <= (os.cpu_count() or 1)


def in_order() -> bool:
    """Whether all processors see stores in the order in which they were made."""
    return platform.machine().lower() in {"x86_64", "amd64", "i686", "x86"}


class ProcessDriver(Driver):
    """Drives environments in the workers of a crew through a header for each worker and a mailbox for each lane."""

    def __init__(self, crew: Crew, description: Description, store: Store, step_timeout: float | None = None) -> None:
        self._crew = crew
        self.num_envs = store.num_envs
        self.description = description
        self.store = store
        words = headers(crew.mapping)
        self._headers = [words[i * HEADER_WORDS : (i + 1) * HEADER_WORDS] for i in range(len(crew.members))]
        self._watch = crew.watch = None if step_timeout is None else Watch(step_timeout, self._headers)
        self._firsts = [worker.lanes.start for worker in crew.members]
        self._owner = np.repeat(np.arange(len(crew.members)), [len(worker.lanes) for worker in crew.members])
        self._mailbox = self.store.mailbox.arrays
        self._turns = TURNS if can_spin(len(crew.members)) else 0
        self._fence = Fence()
        self._issued = [0] * len(crew.members)
        self._ended = [0] * len(crew.members)
        self._busy: set[int] = set()
        self._posted: list[Any] = []
        self._ragged = bool(store.ragged)
        self._closer = util.Finalize(self, Crew.close, (crew, FAILING_TIME), exitpriority=10)

    def post(self, lanes: Any, rows: Any, op: Any, want: int) -> None:
        """See `Driver.post`. A worker may be given further lanes while it is busy with others."""
        self._check_open()
        self._posted.append(lanes)
        if type(lanes) is range and len(lanes) == self.num_envs and isinstance(op, int) and type(rows) is range:
            for header, first in zip(self._headers, self._firsts, strict=True):
                header[OP], header[WANT], header[ROW] = op, want, rows.start + first
            self._issue(range(len(self._headers)))
            return
        lanes = np.asarray(lanes)
        owners = self._owner[lanes]
        workers = np.unique(owners).tolist()
        mailbox = self._mailbox
        mailbox["op"][lanes], mailbox["row"][lanes], mailbox["want"][lanes] = op, rows, want
        mailbox["request"][lanes] = np.array(self._issued)[owners] + 1
        for index in workers:
            self._headers[index][OP] = 0
        self._issue(workers)

    def _issue(self, workers: Sequence[int]) -> None:
        """Publish the next request of these workers, which have something to do from now on."""
        self._publish(workers)
        self._busy.update(workers)

    def _publish(self, workers: Sequence[int]) -> None:
        """Count up the requests of these workers and wake those that doze."""
        headers, issued, watch = self._headers, self._issued, self._watch
        self._fence()
        for index in workers:
            if watch is not None:
                watch.asked(index)
            issued[index] += 1
            headers[index][ISSUED] = issued[index]
        self._fence()
        for index in workers:
            if headers[index][DOZES]:
                self._crew.members[index].inbox.ring()

    def wait(self, least: int | None = None) -> Returned:
        """See `Driver.wait`; a worker has finished when all its lanes have, and all are waited for."""
        del least
        self._check_open()
        try:
            self._wait_for_workers()
        except EnvironmentFailure:
            self._fail()
            raise
        posted, self._posted = self._posted, []
        if not posted:
            return Returned(range(0), [])
        lanes = posted[0] if len(posted) == 1 else np.concatenate([np.asarray(one) for one in posted])
        infos: tuple[dict[int, dict[str, Any]], dict[int, dict[str, Any]]] = ({}, {})
        for some, final in self._crew.take("infos"):
            infos[0].update(some)
            infos[1].update(final)
        if self._ragged:
            self._read_ragged()
        ended = self._take_ended()
        if len(posted) > 1:
            ended = lanes[np.isin(lanes, ended)].tolist()
        return Returned(lanes, ended, *infos)

    def _read_ragged(self) -> None:
        """Write the ragged values that workers have sent to their rows."""
        with undisturbed():
            for values in self._crew.take("ragged"):
                self.store.put_ragged(values)

    def _wait_for_workers(self) -> None:
        """Return when every busy worker has finished; look a few times before blocking."""
        self._crew.glance()
        headers, issued, turns = self._headers, self._issued, self._turns
        for index in self._busy:
            while turns and headers[index][FINISHED] != issued[index]:
                turns -= 1
                os.sched_yield()
        if not turns:
            self._doze()
        self._fence()
        for index in self._busy:
            self._crew.members[index].catch_up()

    def _doze(self) -> None:
        for header in self._headers:
            header[PARENT_DOZES] = 1
        self._fence()
        while not self._all_finished():
            self._crew.listen()
        if self._turns:
            # Where stores may be seen out of order the workers always ring: they cannot know whether this is current.
            for header in self._headers:
                header[PARENT_DOZES] = 0

    def _all_finished(self) -> bool:
        headers, issued = self._headers, self._issued
        return all(headers[index][FINISHED] == issued[index] for index in self._busy)

    def _take_ended(self) -> list[int]:
        """The lanes that ended since the last time, in order."""
        found: list[int] = []
        for index in sorted(self._busy):
            count = self._headers[index][ENDED]
            if count != self._ended[index]:
                self._ended[index] = count
                lanes = self._crew.members[index].lanes
                flags = self._mailbox["ended"][lanes.start : lanes.stop]
                found += (np.flatnonzero(flags) + lanes.start).tolist()
                flags[:] = False
        self._busy.clear()
        return found

    def arrange_resets(self, arguments: dict[int, tuple[int | None, dict[str, Any] | None]]) -> None:
        """See `Driver.arrange_resets`."""
        self._check_open()
        for worker in self._crew.members:
            mine = {lane: arguments[lane] for lane in worker.lanes if lane in arguments}
            if mine:
                worker.send(("resets", mine))

    def call(self, lanes: Sequence[int], operation: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """See `Driver.call`."""
        self._check_open()
        requests: dict[int, list[Any]] = {}
        for lane, given in zip(lanes, arguments, strict=True):
            requests.setdefault(int(self._owner[lane]), []).append((lane, operation, name, given))
        try:
            answers = self._ask(requests)
        except BaseException:
            self._fail()
            raise
        found: dict[int, Any] = {}
        # In the order of the lanes and not of the answers: of several errors it is always the same one.
        for index, asked in requests.items():
            kind, content = answers[index]
            if kind == "refused":
                raise content
            found.update(zip([lane for lane, *_ in asked], content, strict=True))
        return [found[lane] for lane in lanes]

    def _ask(self, requests: dict[int, list[Any]]) -> dict[int, tuple[str, Any]]:
        members, watch = self._crew.members, self._watch
        found: dict[int, tuple[str, Any]] = {}
        for index, some in requests.items():
            if watch is not None:
                watch.questioned(index)
            try:
                members[index].send(("call", some))
            except EnvironmentFailure as error:
                found |= self._unanswered(error)
        while True:
            # The clock of a worker that has answered must not go on because another one has not.
            for index in requests.keys() - found.keys():
                answer = members[index].find("results", "refused")
                if answer is not None:
                    found[index] = answer
                    if watch is not None:
                        watch.answered(index)
            if requests.keys() <= found.keys():
                return found
            try:
                self._crew.listen()
            except EnvironmentFailure as error:
                found = self._unanswered(error) | found

    def _unanswered(self, error: EnvironmentFailure) -> dict[int, tuple[str, Any]]:
        """What stands for the answer of a worker that will not give one; here, nothing does."""
        raise error

    def close(self) -> list[EnvironmentFailure]:
        """See `Driver.close`."""
        # Whoever closes in the middle of a step does not want to wait for it.
        failures = self._crew.close(FAILING_TIME if self._is_busy else None)
        self._closer.cancel()
        return failures

    @property
    def _is_busy(self) -> bool:
        """Whether any worker has something to do."""
        return bool(self._busy)

    def _fail(self) -> None:
        self._crew.close(FAILING_TIME)
        self._closer.cancel()

    @property
    def is_open(self) -> bool:
        """See `Driver.is_open`."""
        return not self._crew.closed

    @property
    def pids(self) -> list[int]:
        """See `Driver.pids`."""
        return self._crew.pids

    def _check_open(self) -> None:
        if self._crew.closed:
            msg = "the environments are closed; make new ones with make_vec"
            raise ClosedError(msg)
