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
from outrider.vector.crew import Crew, share
from outrider.vector.driver import Driver, Returned, one_description
from outrider.vector.plan import Envs, check_count
from outrider.vector.store import HEADER_WORDS, MOST_WORKERS, Frame, Store, headers
from outrider.vector.worker import ENDED, FINISHED, ISSUED, OP, ROW, TURNS, WANT

__all__ = ["ProcessDriver", "Processes", "start_context"]


@dataclass(frozen=True)
class Processes:
    """Run the environments in worker processes, several to a worker.

    Args:
        workers: how many; by default one per processor, at most one per environment.
        start_method: "forkserver", "spawn" or "fork". By default forkserver where the system has it, because a fork of
            a process with threads (PyTorch has some) can deadlock, and spawn elsewhere.

    Raises:
        ConfigError: a bad count, or a start method that the system does not have.
    """

    workers: int | None = None
    start_method: str | None = None

    def __post_init__(self) -> None:
        if self.workers is not None:
            check_count(self.workers, "workers")
        start_context(self.start_method)

    def start(self, plan: Envs) -> ProcessDriver:
        """Start the workers and let them build the environments of `plan`."""
        workers = self.count(plan.num_envs)
        crew = Crew(shared_mapping(), start_context(self.start_method))
        try:
            for lanes in share(plan.num_envs, workers):
                factories = [plan.factories[lane] for lane in lanes]
                crew.start(lanes, ("outrider.vector.worker", "run"), (factories, plan.info_keys, can_spin(workers)))
            return ProcessDriver(crew, plan.num_envs)
        except BaseException:
            crew.close()
            raise

    def count(self, num_envs: int) -> int:
        """How many workers `num_envs` environments get."""
        if self.workers is None:
            return min(num_envs, os.cpu_count() or 1)
        if self.workers > min(num_envs, MOST_WORKERS):
            raise ConfigError(
                explain(
                    expected=f"at most {min(num_envs, MOST_WORKERS)} workers for {num_envs} environments",
                    found=self.workers,
                    where="Processes(workers=...)",
                    fix="ask for fewer workers or for more environments",
                )
            )
        return self.workers


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
    ordered = platform.machine().lower() in {"x86_64", "amd64", "i686", "x86"}
    return ordered and sys.platform == "linux" and workers <= (os.cpu_count() or 1)


class ProcessDriver(Driver):
    """Drives environments in the workers of a crew through a header for each worker and a mailbox for each lane."""

    def __init__(self, crew: Crew, num_envs: int) -> None:
        self._crew = crew
        self.num_envs = num_envs
        self.description = one_description([(w.lanes.start, w.expect("description")) for w in crew.members])
        frame = Frame.divide(crew.mapping, num_envs, self.description.space, self.description.action_space)
        for worker in crew.members:
            worker.send(frame)
        crew.mapping.seal()
        self.store = Store(crew.mapping, frame)
        words = headers(crew.mapping)
        self._headers = [words[i * HEADER_WORDS : (i + 1) * HEADER_WORDS] for i in range(len(crew.members))]
        self._firsts = [worker.lanes.start for worker in crew.members]
        self._owner = np.repeat(np.arange(len(crew.members)), [len(worker.lanes) for worker in crew.members])
        self._ops, self._rows = self.store.mailbox.arrays["op"], self.store.mailbox.arrays["row"]
        self._turns = TURNS if can_spin(len(crew.members)) else 0
        self._issued = [0] * len(crew.members)
        self._busy: list[int] = []
        self._posted: list[Any] = []
        self._closer = util.Finalize(self, Crew.close, (crew,), exitpriority=10)

    def post(self, lanes: Any, rows: Any, op: Any, want: int) -> None:
        """See `Driver.post`. A worker is given one request at a time."""
        self._check_open()
        self._posted.append(lanes)
        if type(lanes) is range and len(lanes) == self.num_envs and isinstance(op, int) and type(rows) is range:
            for index, first in enumerate(self._firsts):
                self._headers[index][ROW] = rows.start + first
                self._issue(index, op, want)
            return
        lanes = np.asarray(lanes)
        self._ops[lanes] = op
        self._rows[lanes] = rows
        for index in np.unique(self._owner[lanes]).tolist():
            self._issue(index, 0, want)

    def _issue(self, index: int, op: int, want: int) -> None:
        header = self._headers[index]
        self._issued[index] += 1
        header[OP] = op
        header[WANT] = want
        header[ISSUED] = self._issued[index]
        self._crew.members[index].inbox.ring()
        self._busy.append(index)

    def wait(self) -> Returned:
        """See `Driver.wait`."""
        self._check_open()
        try:
            self._wait_for_workers()
        except EnvironmentFailure:
            self.close()
            raise
        posted, self._posted = self._posted, []
        ended: list[int] = []
        for index in sorted(self._busy):
            count = self._headers[index][ENDED]
            if count:
                first = self._firsts[index]
                ended += self.store.mailbox.arrays["ended"][first : first + count].tolist()
        self._busy.clear()
        lanes = posted[0] if len(posted) == 1 else np.concatenate([np.asarray(one) for one in posted])
        infos: tuple[dict[int, dict[str, Any]], dict[int, dict[str, Any]]] = ({}, {})
        for some, final in self._crew.take("infos"):
            infos[0].update(some)
            infos[1].update(final)
        return Returned(lanes, ended, *infos)

    def _wait_for_workers(self) -> None:
        """Return when every busy worker has finished; look a few times before blocking."""
        for _ in range(self._turns):
            if self._all_finished():
                break
            os.sched_yield()
        while not self._all_finished():
            self._crew.listen()
        for index in self._busy:
            self._crew.members[index].catch_up()

    def _all_finished(self) -> bool:
        headers, issued = self._headers, self._issued
        return all(headers[index][FINISHED] == issued[index] for index in self._busy)

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
        for index, some in requests.items():
            self._crew.members[index].send(("call", some))
        found: dict[int, Any] = {}
        refused: list[EnvironmentFailure] = []
        for index, some in requests.items():
            kind, content = self._crew.members[index].expect_any("results", "refused")
            if kind == "refused":
                refused.append(content)
            else:
                found.update(zip([lane for lane, *_ in some], content, strict=True))
        if refused:
            raise refused[0]
        return [found[lane] for lane in lanes]

    def close(self) -> list[EnvironmentFailure]:
        """See `Driver.close`."""
        self._closer.cancel()
        return self._crew.close()

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
