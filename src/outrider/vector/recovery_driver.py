"""The drivers of `Processes(on_failure=...)`: replace workers that are of no use any more, or do without them."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from outrider.errors import ConfigError, EnvironmentFailure, EnvironmentTimeout, WorkerDied, explain
from outrider.vector.driver import RESET, Returned, one_description
from outrider.vector.finishers import FirstFinishers
from outrider.vector.plan import Envs
from outrider.vector.recovery import Budget, Turn, nobody_left, used_up
from outrider.vector.recovery_server import Terms
from outrider.vector.worker import Job

__all__ = ["RUN", "DroppingDriver", "RestartingDriver"]

RUN = ("outrider.vector.recovery_server", "run")


class _Surviving(FirstFinishers):
    """What both kinds have in common: they know whose failure an error is."""

    def _survive(self, error: EnvironmentFailure) -> None:
        try:
            self._recover(error, self._worker_of(error))
        except BaseException:
            self._fail()
            raise

    def _recover(self, error: EnvironmentFailure, index: int | None) -> None:
        """Go on after `error`, of the worker `index` where it is to be replaced, or raise it."""
        raise NotImplementedError

    def _worker_of(self, error: EnvironmentFailure) -> int | None:
        """The worker that cannot go on after this error, if it is one of ours."""
        if not isinstance(error, (WorkerDied, EnvironmentTimeout)):
            return None
        pids = [member.pid for member in self._crew.members]
        return pids.index(error.pid) if error.pid in pids else None

    def call(self, lanes: Sequence[int], operation: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """See `Driver.call`. A worker that dies or hangs in it is treated as in a step; its answer is that error."""
        self._check_open()
        try:
            self._crew.listen(0)
        except EnvironmentFailure as error:
            self._survive(error)
        return super().call(lanes, operation, name, arguments)

    def _unanswered(self, error: EnvironmentFailure) -> dict[int, tuple[str, Any]]:
        index = self._worker_of(error)
        # It may have answered before it died.
        answer = None if index is None else self._crew.members[index].find("results", "refused")
        self._survive(error)
        if index is None:
            return {}
        if self._watch is not None:
            self._watch.answered(index)
        fate = "begin anew" if self.rebuilds else "are dropped"
        error.add_note(f"the answer of this worker is lost, and its lanes {fate}; the others are as they were")
        return {index: answer or ("refused", error)}


class RestartingDriver(_Surviving):
    """Starts a worker anew when it has died or hangs; what raises is rebuilt by the worker itself."""

    rebuilds = True

    def __init__(self, *arguments: Any, wait_for: int | None, plan: Envs, terms: Terms) -> None:
        super().__init__(*arguments, wait_for=wait_for)
        self._plan, self._terms = plan, terms
        self._budgets = [Budget(terms.restart) for _ in self._crew.members]
        self._generations = [0] * len(self._crew.members)
        self._building: set[int] = set()
        self._seeds: dict[int, int] = {}
        self._options: dict[int, dict[str, Any]] = {}
        self._lost: set[int] = set()

    def arrange_resets(self, arguments: dict[int, tuple[int | None, dict[str, Any] | None]]) -> None:
        """See `Driver.arrange_resets`."""
        for lane, (seed, options) in arguments.items():
            if seed is not None:
                self._seeds[lane] = seed
            if options is not None:
                self._options[lane] = options
        super().arrange_resets(arguments)

    def _recover(self, error: EnvironmentFailure, index: int | None) -> None:
        self._hear_of_restarts()
        if index is None and error.operation == "construct":
            # No environment is constructed in `wait`, but in a worker that was replaced, or over its bound.
            index = next((one for one in self._building if error.lane in self._crew.members[one].lanes), None)
        if index is None:
            raise error
        lanes = self._crew.members[index].lanes
        turn = self._budgets[index].spend()
        if turn is None:
            whose = f"worker {index} (lanes {lanes.start} to {lanes.stop - 1})"
            raise used_up(error, whose, self._terms.restart) from error
        self._count_restart(f"lanes {lanes.start} to {lanes.stop - 1} are restarted in a new worker", turn, error)
        self._replace(index, turn.delay)

    def _replace(self, index: int, delay: float) -> None:
        self._generations[index] += 1
        lanes = self._crew.members[index].lanes
        # A reset that nobody has seen is done again: otherwise the first step after it would be lost.
        mine = np.arange(lanes.start, lanes.stop)
        again = mine[(self._done[mine] != self._taken[mine]) & (self._mailbox["op"][mine] == RESET)]
        self._done[again] = self._taken[again]
        seeds = {lane: seed for lane, seed in self._seeds.items() if lane in lanes}
        options = {lane: some for lane, some in self._options.items() if lane in lanes}
        generation = self._generations[index]
        terms = dataclasses.replace(self._terms, generation=generation, seeds=seeds, options=options)
        plan = self._plan
        factories = [plan.factories[lane] for lane in lanes]
        # It is told all at once: whoever waits for an answer to what he sends must not be waited for with one.
        job = Job(factories, plan.info_keys, self._watch is not None, terms, self.store.frame)
        self._crew.replace(index, RUN, job, delay)
        self._building.add(index)

    def _hear_of_restarts(self) -> None:
        """Take note of what workers have said of the environments that they rebuild."""
        for index in sorted(self._building):
            for description in self._crew.members[index].take("description"):
                # What is left out of observations has been said before.
                first = dataclasses.replace(self.description, left_out=())
                one_description([(0, first), (self._firsts[index], description)])
                self._building.discard(index)
        for lane, turn, error in self._crew.take("restarted"):
            self._count_restart(f"lane {lane} is restarted", turn, error)
        self._lost.update(self._crew.take("lost"))

    def _count_restart(self, what: str, turn: Turn, error: EnvironmentFailure) -> None:
        self.restarts += 1
        cause = str(error).partition("\n")[0]
        warnings.warn(f"{what} {turn}: {cause}", RuntimeWarning, stacklevel=5)

    def _take(self, arrived: np.ndarray) -> Returned:
        self._hear_of_restarts()
        back = super()._take(arrived)
        if self._options:
            for lane in arrived.tolist():
                self._options.pop(lane, None)
        if self._lost:
            back.lost = [lane for lane in arrived.tolist() if lane in self._lost]
            self._lost.difference_update(back.lost)
            self.lost_steps += len(back.lost)
            for lane in back.lost:
                back.final_infos.pop(lane, None)
        return back


class DroppingDriver(_Surviving):
    """Does without lanes that fail."""

    drops = True

    def __init__(self, *arguments: Any, wait_for: int | None) -> None:
        super().__init__(*arguments, wait_for=wait_for)
        self._newly_dropped: dict[int, EnvironmentFailure] = {}

    def post(self, lanes: Any, rows: Any, op: Any, want: int) -> None:
        """See `Driver.post`.

        Raises:
            ConfigError: one of the lanes was dropped.
        """
        self._refuse_dropped(lanes)
        super().post(lanes, rows, op, want)

    def arrange_resets(self, arguments: dict[int, tuple[int | None, dict[str, Any] | None]]) -> None:
        """See `Driver.arrange_resets`; lanes that were dropped are passed over."""
        super().arrange_resets({lane: given for lane, given in arguments.items() if lane not in self.dropped})

    def call(self, lanes: Sequence[int], operation: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """See `Driver.call`.

        Raises:
            ConfigError: one of the lanes was dropped.
        """
        self._refuse_dropped(lanes)
        return super().call(lanes, operation, name, arguments)

    def _refuse_dropped(self, lanes: Any) -> None:
        if self.dropped and (gone := sorted(set(self.dropped).intersection(np.asarray(lanes).tolist()))):
            raise ConfigError(
                explain(
                    expected="lanes that are still there",
                    found=f"lanes {gone}, which were dropped after they had failed",
                    where="what is sent to lanes, or asked of them",
                    fix="leave out those in `envs.dropped`: name the others in send(actions, env_ids), "
                    "send_reset(env_ids) and at(env_ids); step(), reset() and what asks all lanes need all of them",
                )
            )

    def _recover(self, error: EnvironmentFailure, index: int | None) -> None:
        lanes = [error.lane]
        if index is not None:
            lanes = list(self._crew.members[index].lanes)
            self._crew.dismiss(index)
            if self._watch is not None:
                self._watch.forget(index)
        new = sorted(set(lanes).difference(self.dropped))
        if not set(new) <= set(self.lanes):
            raise error
        self.dropped = tuple(sorted({*self.dropped, *new}))
        self._newly_dropped.update(dict.fromkeys(new, error))
        # Nobody waits for them any more, and nothing of them arrives.
        self._done[new] = self._taken[new] = self._request[new]
        if len(self.dropped) == self.num_envs:
            raise nobody_left(error, self.num_envs) from error
        names = f"lane {new[0]} is" if len(new) == 1 else f"lanes {new} are"
        cause = str(error).partition("\n")[0]
        warnings.warn(f"{names} dropped: {cause}", RuntimeWarning, stacklevel=4)

    def _take(self, arrived: np.ndarray) -> Returned:
        back = super()._take(arrived)
        back.dropped, self._newly_dropped = self._newly_dropped, {}
        return back
