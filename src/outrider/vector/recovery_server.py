"""What a worker of `Processes(on_failure=Restart(...))` runs: it rebuilds environments that raise, in their place."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from outrider.errors import EnvironmentFailure
from outrider.seeding import seed_globals
from outrider.vector.bootstrap import WorkerStart
from outrider.vector.driver import RESET, describe
from outrider.vector.group import CONSTRUCTING, EnvGroup, build, failure
from outrider.vector.lane_server import LaneServer
from outrider.vector.plan import EnvFactory
from outrider.vector.recovery import Budget, Restart, fresh_seed, used_up
from outrider.vector.worker import DOZES, FINISHED, ISSUED, OPERATION, Channel, host

__all__ = ["Terms", "run"]


@dataclass(frozen=True)
class Terms:
    """What a worker is to know beside its environments.

    Attributes:
        spin: whether to look a few times before blocking.
        factories: of all lanes.
        restart: how often environments may be rebuilt.
        generation: how often this worker was replaced. The lanes of one that was begin anew.
        seeds: by lane, what the environments of its predecessor were last seeded with.
        options: by lane, those of resets that are to come or under way.
    """

    spin: bool
    factories: list[EnvFactory]
    restart: Restart
    generation: int = 0
    seeds: dict[int, int] = field(default_factory=dict)
    options: dict[int, dict[str, Any]] = field(default_factory=dict)


def run(start: WorkerStart) -> None:
    """Build the environments of a worker, describe them, and serve their lanes until told to close."""
    host(start, lambda channel, group, terms: _RecoveryServer(channel, group, terms).serve())


class _RecoveryServer(LaneServer):
    """Serves lanes one at a time; a lane whose environment fails gets a new one.

    The reset observation of a new environment answers the request that failed. If that was a step, it goes to the
    lane's row in `store.final`, and the parent is told that the step is lost.
    """

    def __init__(self, channel: Channel, group: EnvGroup, terms: Terms) -> None:
        super().__init__(channel, group, spin=terms.spin)
        self._terms = terms
        # It has all that `describe` looks at, and keeps no environment alive.
        self._reference: Any = describe(group.envs[:1], group.first)
        self._budgets = [Budget(terms.restart) for _ in self._lanes]
        self._rebuilt = [0] * len(self._lanes)
        self._seeds: dict[int, int] = dict(terms.seeds)
        self._options: dict[int, dict[str, Any]] = dict(terms.options)
        # Lanes (by index) whose new environment was not yet reset, and those that wait to be rebuilt, and until when.
        self._fresh = set(range(len(self._lanes))) if terms.generation else set()
        self._resting: dict[int, float] = {}
        if terms.generation:
            # What draws from a global generator must not repeat what it drew before.
            seed_globals(self._new_seed(0))

    def _arrange(self, arguments: dict[int, tuple[int | None, dict[str, Any] | None]]) -> None:
        for lane, (seed, options) in arguments.items():
            if seed is not None:
                self._seeds[lane] = seed
            if options is not None:
                self._options[lane] = options
        super()._arrange(arguments)

    def _work(self, number: int) -> None:
        super()._work(number)
        if self._resting:
            # The request is not done yet, and whoever times it has to know.
            self._channel.header[FINISHED] = number - 1

    def _serve_lane(self, index: int) -> None:
        try:
            if index in self._fresh:
                self._begin(index)
            else:
                super()._serve_lane(index)
        except EnvironmentFailure as error:
            self._rebuild_after(index, error)
        else:
            if self._ops[index] == RESET:
                self._options.pop(self._lanes[index], None)

    def _rebuild_after(self, index: int, error: EnvironmentFailure) -> None:
        """Close the environment of a lane and make a new one, at once or after a while.

        Raises:
            EnvironmentFailure: too many restarts.
        """
        self._group.take_infos()
        self._group.abandon(self._lanes[index])
        while True:
            turn = self._budgets[index].spend()
            if turn is None:
                raise used_up(error, f"lane {self._lanes[index]}", self._terms.restart)
            self._channel.send("restarted", (self._lanes[index], turn, error))
            if turn.delay:
                self._resting[index] = time.monotonic() + turn.delay
                return
            try:
                self._rebuild(index)
            except EnvironmentFailure as again:
                error = again
                self._group.abandon(self._lanes[index])
            else:
                return

    def _rebuild(self, index: int) -> None:
        lane, group = self._lanes[index], self._group
        env = build([self._terms.factories[lane]], lane, group.note)[0]
        group.install(lane, env)
        try:
            describe([self._reference, env], lane - 1)
        except Exception as error:
            raise failure(lane, "construct", error) from error
        self._rebuilt[index] += 1
        self._fresh.add(index)
        self._begin(index)

    def _begin(self, index: int) -> None:
        """Reset a new environment, and answer the request that stands for its lane."""
        lane, group = self._lanes[index], self._group
        if not group.is_seeded(lane):
            group.arrange_resets({lane: (self._new_seed(index), self._options.get(lane))})
        if self._ops[index] == RESET:
            super()._serve_lane(index)
        else:
            want = int(self._wants[index])
            group.reset([lane], [group.store.final + lane], want)
            self._channel.send("lost", lane)
            self._answer(index, ended=False, want=want)
        self._fresh.discard(index)

    def _new_seed(self, index: int) -> int:
        lane = self._lanes[index]
        return fresh_seed(self._seeds.get(lane), lane, self._terms.generation, self._rebuilt[index])

    def _pause(self) -> None:
        """Wait until there may be something to do, or a lane has rested long enough."""
        if not self._resting:
            super()._pause()
            return
        channel, header = self._channel, self._channel.header
        header[OPERATION] = CONSTRUCTING
        header[DOZES] = 1
        channel.fence()
        left = min(self._resting.values()) - time.monotonic()
        if header[ISSUED] == self._served and not channel.has_message() and left > 0:
            channel.block(left)
        header[DOZES] = 0 if self._turns else 1
        for index in [index for index, until in self._resting.items() if until <= time.monotonic()]:
            del self._resting[index]
            self._wake(index)
        if not self._resting:
            header[FINISHED] = self._served

    def _wake(self, index: int) -> None:
        """Rebuild an environment whose time has come."""
        try:
            try:
                self._rebuild(index)
            except EnvironmentFailure as error:
                self._rebuild_after(index, error)
        except EnvironmentFailure as error:
            self._channel.send("failure", error)
