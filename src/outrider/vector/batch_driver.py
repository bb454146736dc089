"""What the drivers of foreign batches share: a private store, spaces, failures, and where each lane stands."""

from __future__ import annotations

import copy
import os
import traceback
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from gymnasium.vector.utils import batch_space

from outrider.errors import EnvironmentFailure
from outrider.memory.mapping import PrivateMapping
from outrider.spaces import observation_writer
from outrider.vector.batch_infos import copied, final_infos, lane_infos, plain_layout
from outrider.vector.batch_rows import batch_writer, one_each
from outrider.vector.driver import RESET, Driver, Returned, describe, one_description
from outrider.vector.group import ALL_INFOS, FAILURES, NO_INFOS, quietly
from outrider.vector.requests import write_actions
from outrider.vector.store import Frame, Store

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.spaces import Box

__all__ = ["Batch", "BatchDriver", "Member"]


@dataclass(frozen=True)
class Member:
    """What one environment of a batch says of itself; in the place of one where descriptions are made."""

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    metadata: dict[str, Any]
    spec: Any
    render_mode: str | None
    reward_space: Box | None = None


@dataclass(frozen=True)
class Batch:
    """What a source returned for some of its environments, in any layout and kind of array.

    Attributes:
        obs, reward, terminated, truncated, infos: as the source gave them; reward and flags as arrays.
        count: of how many environments.
    """

    obs: Any
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    infos: Any
    count: int

    @classmethod
    def of(cls, step: Any, count: int, reward_shape: tuple[int, ...] = ()) -> Batch:
        """Read what a step of a source returned.

        Raises:
            SpecError: there is not one reward and flag for each environment.
        """
        obs, reward, terminated, truncated, infos = step
        return cls(
            obs,
            one_each(reward, count, np.float64, "rewards", reward_shape),
            one_each(terminated, count, np.bool_, "terminations"),
            one_each(truncated, count, np.bool_, "truncations"),
            infos,
            count,
        )


class BatchDriver(Driver):
    """Environments that somebody else has vectorised, in a source that is taken over: closing this closes it.

    Lanes whose episode nobody goes on with are spare: those never reset, held at their end, or let go of. What they do
    until their next reset is nobody's business.
    """

    resets_apart = False

    def __init__(self, source: Any, member: Member, num_envs: int, info_keys: tuple[str, ...]) -> None:
        description = one_description([(0, describe([cast("gymnasium.Env[Any, Any]", member)], 0))])
        mapping = PrivateMapping()
        self.description = description
        self.num_envs = num_envs
        spaces = description.space, description.action_space
        self.store = Store(mapping, Frame.divide(mapping, num_envs, *spaces, description.reward))
        self._source = source
        self._name = type(source).__name__
        self._info_keys = info_keys
        self._open = True
        # Whether a call of the source did not come to its end, after which nobody knows what it waits for.
        self._is_torn = False
        self._write = batch_writer(description.observation_space, self.store.obs)
        self._write_one = observation_writer(description.observation_space, self.store.obs)
        self._everyone = np.arange(num_envs)
        self._spare = np.ones(num_envs, np.bool_)
        # Lanes whose last step ended their episode, and which were not reset since.
        self._at_end = np.zeros(num_envs, np.bool_)
        # Lanes that go along need an action that is one, also if nobody has ever sent them any.
        actions = batch_space(copy.deepcopy(description.action_space), num_envs)
        actions.seed(0)
        write_actions(self.store.action, actions.sample(), range(num_envs))

    def let_go(self, lanes: Any) -> None:
        """See `Driver.let_go`."""
        self._spare[np.asarray(lanes)] = True

    @property
    def is_open(self) -> bool:
        """See `Driver.is_open`."""
        return self._open

    def close(self) -> list[EnvironmentFailure]:
        """See `Driver.close`; closes the source."""
        if not self._open:
            return []
        self._open = False
        source, self._source = self._source, None
        error = quietly(lambda: self._end(source))
        return [] if error is None else [self._failure("close", error)]

    def _end(self, source: Any) -> None:
        """Close the source."""
        source.close()

    def call(self, lanes: Sequence[int], operation: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """See `Driver.call`.

        Raises:
            ConfigError: the source cannot do this, or not for some of its lanes.
            EnvironmentFailure: an environment raised; nothing is closed.
        """
        ask = self._question(list(lanes), operation, name, arguments)
        try:
            return list(ask())
        except FAILURES as error:
            raise self._failure(f"{operation} {name!r}", error) from error

    @abstractmethod
    def _question(self, lanes: list[int], operation: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> Any:
        """Return what asks the source, after checking that it can be asked."""

    @contextmanager
    def _calling(self, operation: str) -> Iterator[None]:
        """Around what the source does: its errors close it and get its name."""
        try:
            yield
        except BaseException as error:
            self._is_torn = True
            if not isinstance(error, FAILURES):
                raise
            if self._open:
                self.close()
            raise self._failure(operation, error) from error

    def _failure(self, operation: str, error: Exception | SystemExit) -> EnvironmentFailure:
        """An error of the source; which of its environments it was, it does not say."""
        if isinstance(error, EnvironmentFailure):
            return error
        trace = "".join(traceback.format_exception(error)).rstrip()
        message = f"{self._name}, {operation}, process {os.getpid()}: {type(error).__name__}: {error}\n\n{trace}"
        return EnvironmentFailure(message, lane=-1, operation=operation, pid=os.getpid())

    def _put_step(self, batch: Batch, chosen: Any, lanes: np.ndarray, rows: np.ndarray, ops: np.ndarray) -> np.ndarray:
        """Write the `chosen` part of a batch to `rows`, which belong to `lanes`; return which of these have ended.

        Steps that did nothing but reset their lane get no reward and no flags; resets leave the row before them alone.
        """
        everything = chosen is None and np.array_equal(rows, self._everyone + rows[0])
        # One copy for all of them.
        at: Any = slice(int(rows[0]), int(rows[-1]) + 1) if everything else rows
        self._write(batch.obs, batch.count, chosen, at)
        part = slice(None) if chosen is None else chosen
        reward, terminated, truncated = batch.reward[part], batch.terminated[part], batch.truncated[part]
        only_reset = self._at_end[lanes] | (ops == RESET)
        if only_reset.any():
            reward = reward.copy()
            reward[only_reset] = 0.0
            terminated, truncated = terminated & ~only_reset, truncated & ~only_reset
            stepped = ops != RESET
            rows, reward, flags = rows[stepped], reward[stepped], (terminated[stepped], truncated[stepped])
        else:
            flags = terminated, truncated
        steps = rows - self.store.num_envs
        self.store.reward[steps], (self.store.terminated[steps], self.store.truncated[steps]) = reward, flags
        ended: np.ndarray = terminated | truncated
        return ended

    def _keep_infos(self, found: Returned, batch: Batch, lanes: np.ndarray, chosen: Any, want: int) -> None:
        """Keep the infos of a batch for whoever wants them, those of ends apart; whole if all of all are wanted."""
        if want == NO_INFOS:
            return
        if want == ALL_INFOS and chosen is None and batch.count == self.num_envs and plain_layout(batch.infos):
            found.batch_infos = copied(batch.infos)
            return
        keys = None if want == ALL_INFOS else self._info_keys
        places = list(zip(lanes.tolist(), range(batch.count) if chosen is None else chosen.tolist(), strict=True))
        ended = batch.terminated | batch.truncated
        found.infos |= lane_infos(batch.infos, places, batch.count, keys)
        at_end = [place for place in places if ended[place[1]]]
        if at_end:
            found.final_infos |= final_infos(batch.infos, at_end, batch.count, keys)
