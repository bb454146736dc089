"""Environments in the calling process, one after the other."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from dataclasses import InitVar, dataclass
from itertools import repeat
from typing import Any

import numpy as np

from outrider.errors import ConfigError, EnvironmentFailure, explain
from outrider.memory.mapping import PrivateMapping
from outrider.vector.driver import RESET, STEP_AND_HOLD, Driver, Returned, describe, one_description
from outrider.vector.group import NO_INFOS, EnvGroup, build, quietly
from outrider.vector.plan import Envs
from outrider.vector.recovery import OnFailure, refuse_on_failure
from outrider.vector.store import Frame, Store

__all__ = ["Inline", "InlineDriver"]


@dataclass(frozen=True)
class Inline:
    """Run every environment in the calling process: nothing to start, and best for environments of microseconds.

    An environment that exits or is killed takes the process with it; one that raises is named like everywhere else.

    Args:
        step_timeout: only None: nobody can end a call in this very thread.
        on_failure: only "raise"; `Processes` can do otherwise.

    Raises:
        ConfigError: another choice.
    """

    step_timeout: InitVar[float | None] = None
    on_failure: InitVar[OnFailure] = "raise"

    def __post_init__(self, step_timeout: float | None, on_failure: OnFailure) -> None:
        refuse_on_failure(on_failure, "Inline")
        if step_timeout is not None:
            raise ConfigError(
                explain(
                    expected="no step_timeout: nobody can end a call in the thread that waits for it",
                    found=repr(step_timeout),
                    where="Inline(step_timeout=...)",
                    fix="use Processes(workers=1, step_timeout=...), which ends the process of a call that takes too "
                    "long, or Threads(...), which gives its thread up",
                )
            )

    def start(self, plan: Envs) -> InlineDriver:
        """Build the environments of `plan`."""
        envs = build(plan.factories, 0)
        try:
            description = one_description([(0, describe(envs, 0))])
            mapping = PrivateMapping()
            spaces = description.space, description.action_space
            store = Store(mapping, Frame.divide(mapping, plan.num_envs, *spaces, description.reward))
            driver = InlineDriver(EnvGroup(envs, 0, store, plan.info_keys), store)
        except BaseException:
            for env in envs:
                quietly(env.close)
            raise
        driver.description = description
        return driver


class InlineDriver(Driver):
    """Runs one group of lanes in this process: all of them, or a worker's share of a store that workers fill together.

    What is posted is run by `wait`, where its errors belong.
    """

    def __init__(self, group: EnvGroup, store: Store) -> None:
        self.store = store
        self.num_envs = len(group.envs)
        self._group = group
        self._posted: list[tuple[Any, Any, Any, int]] = []
        self._closer = weakref.finalize(self, _close_forgotten, group, os.getpid())

    def post(self, lanes: Any, rows: Any, op: Any, want: int) -> None:
        """See `Driver.post`."""
        self._posted.append((lanes, rows, op, want))

    def wait(self, least: int | None = None) -> Returned:
        """See `Driver.wait`; there is nothing that could arrive earlier than the rest."""
        del least
        posted, self._posted = self._posted, []
        if not posted:
            # The wait before this one was interrupted; how far the lanes came is not known.
            self._group.take_infos()
            return Returned(range(0), [])
        ended: list[int] = []
        wanted = NO_INFOS
        try:
            for lanes, rows, op, want in posted:
                ended += run(self._group, lanes, rows, op, want)
                wanted |= want
        except EnvironmentFailure:
            self.close()
            raise
        if len(posted) > 1:
            lanes = np.concatenate([np.asarray(request[0]) for request in posted])
        return Returned(lanes, ended, *self._group.take_infos()) if wanted else Returned(lanes, ended)

    def exchange(self, lanes: Any, rows: Any, op: Any, want: int) -> Returned:
        """See `Driver.exchange`."""
        try:
            ended = run(self._group, lanes, rows, op, want)
        except EnvironmentFailure:
            self.close()
            raise
        return Returned(lanes, ended, *self._group.take_infos()) if want else Returned(lanes, ended)

    def arrange_resets(self, arguments: dict[int, tuple[int | None, dict[str, Any] | None]]) -> None:
        """See `Driver.arrange_resets`."""
        self._group.arrange_resets(arguments)

    def call(self, lanes: Sequence[int], operation: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """See `Driver.call`."""
        pairs = zip(lanes, arguments, strict=True)
        return [self._group.call(lane, operation, name, given) for lane, given in pairs]

    def close(self) -> list[EnvironmentFailure]:
        """See `Driver.close`."""
        self._posted.clear()
        failures = self._group.close()
        self._closer.detach()
        return failures

    @property
    def lanes(self) -> range:
        """See `Driver.lanes`."""
        return range(self._group.first, self._group.first + self.num_envs)

    @property
    def is_open(self) -> bool:
        """See `Driver.is_open`."""
        return not self._group.closed


def run(group: EnvGroup, lanes: Any, rows: Any, op: Any, want: int) -> list[int]:
    """Do what `Driver.post` asks of the lanes of one group; return the lanes that ended."""
    if type(op) is int:
        if op == RESET:
            group.reset(_plain(lanes), _plain(rows), want)
            return []
        return group.step(lanes, rows, repeat(op == STEP_AND_HOLD), want)
    lanes, rows = np.asarray(lanes), np.asarray(rows)
    resets = op == RESET
    group.reset(lanes[resets].tolist(), rows[resets].tolist(), want)
    steps = ~resets
    return group.step(lanes[steps], rows[steps], (op[steps] == STEP_AND_HOLD).tolist(), want)


def _close_forgotten(group: EnvGroup, pid: int) -> None:
    """Close environments that nobody closed, but not in a process that was forked from theirs."""
    if os.getpid() == pid:
        group.close()


def _plain(numbers: Any) -> Any:
    return numbers if type(numbers) is range else numbers.tolist()
