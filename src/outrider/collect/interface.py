"""What every collector offers, wherever it runs its loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count as counting
from typing import Any, Self, TypeVar

import numpy as np

from outrider.collect.requests import (
    check_lane_count,
    check_lanes_left,
    check_open,
    check_quota,
    check_request,
    check_rows,
)
from outrider.collect.stats import CollectStats, Recorder
from outrider.collect.tape import Tape
from outrider.policies.base import Policy
from outrider.policies.function import as_policy
from outrider.records.episodes import Episodes
from outrider.records.rollout import Rollout
from outrider.records.step_spec import StepSpec
from outrider.records.steps import Steps
from outrider.replay.buffer import ReplayBuffer
from outrider.replay.samplers import Sampler
from outrider.replay.storage import Storage
from outrider.replay.views import View
from outrider.seeding import lane_seeds, resolve_seed
from outrider.tree import Tree
from outrider.undisturbed import undisturbed

__all__ = ["BaseCollector"]

LONGEST_BLOCK = 128
"""Steps of each lane that `fill` collects before it adds them: more would only wait longer to be copied."""

Record = TypeVar("Record", Rollout, Steps, Episodes)


class BaseCollector(ABC):
    """Hands out exactly what it is asked for, by letting the lanes take steps and taking rows from a tape.

    Calls may be mixed as you like: running episodes go on from one call to the next, and a row that was collected and
    not asked for is handed out by the next call. Steps taken = rows handed out + `stats.carried`, always.

    Attributes:
        seed: the run seed.
        num_envs: number of lanes.
    """

    seed: int
    num_envs: int
    _tape: Tape
    _recorder: Recorder
    _closed = False

    def rollout(self, length: int, *, lanes: int | None = None) -> Rollout:
        """Return exactly `length` steps of every lane, [length, num_envs], or of some.

        Args:
            length: how many steps of each.
            lanes: how many lanes: those that are the first to have so many steps. What is returned is a copy then, the
                column `env_id` says which they were, and the others keep their rows. None: all, without a copy where
                nothing was carried over. Lanes that were dropped after a failure are missing.

        Raises:
            ConfigError: `length` or `lanes` is not a positive integer, or `lanes` more than there are; nothing is
                stepped then. Or so many lanes were dropped meanwhile that fewer are left: rows are kept.
            EnvironmentFailure, PolicyError: the environments or the policy failed.
        """
        check_request(length, "rollout(length)", 1)
        check_lane_count(lanes, self.num_envs)
        self._check_open()
        check_lanes_left(lanes, len(self._lanes_left()), self.num_envs)
        self._reach(length, lanes or self.num_envs)
        left = self._lanes_left()
        check_lanes_left(lanes, len(left), self.num_envs)
        if lanes is None and len(left) == self.num_envs:
            return self._hand_out(lambda: self._tape.take_rollout(length))
        return self._hand_out(lambda: self._tape.take_lanes(length, lanes or len(left), left))

    def rollouts(self, length: int, count: int | None = None) -> Iterator[Rollout]:
        """Yield `count` rollouts of `length` steps, or rollouts for ever; each is collected when it is asked for."""
        check_request(length, "rollouts(length, ...)", 1)
        if count is not None:
            check_request(count, "rollouts(..., count)", 0)
        return (self.rollout(length) for _ in (counting() if count is None else range(count)))

    def steps(self, count: int) -> Steps:
        """Return exactly `count` transitions in the order of collection, each lane's in order of time.

        Raises:
            ConfigError: `count` is not a positive integer; nothing is stepped then.
            EnvironmentFailure, PolicyError: the environments or the policy failed.
        """
        check_request(count, "steps(count)", 1)
        self._check_open()
        self._gather(count)
        return self._hand_out(lambda: self._tape.take_steps(count))

    def episodes(self, count: int, *, quota: str | None = None) -> Episodes:
        """Start exactly `count` episodes and return them all, whole: no length is favoured.

        Running episodes are cut first; rows of theirs that were not handed out stay for the other calls.

        Args:
            count: how many, at least 1.
            quota: "per_env" gives each lane an equal share (the first lanes one more where it does not divide), so
                that the result is the same for any timing; None lets whichever lane has finished begin the next.

        Raises:
            ConfigError: a bad count or quota; nothing is stepped then.
            EnvironmentFailure, PolicyError: the environments or the policy failed.
        """
        check_request(count, "episodes(count)", 1)
        check_quota(quota)
        self._check_open()
        return self._episodes(count, per_lane=quota == "per_env")

    def fill(self, replay: ReplayBuffer, count: int, policy: Policy | Callable[[Any], Any] | None = None) -> int:
        """Add exactly `count` transitions to a replay buffer, in blocks of all lanes as far as they go; return `count`.

        Steps that were carried over from the call before come first, whoever decided them.

        Args:
            replay: made for the rows of this collector, e.g. by `new_replay`.
            count: how many, at least 1.
            policy: decides the steps that are taken in this call, e.g. a `RandomPolicy` for a warm-up; running episodes
                go on. None: the collector's own. The environments get what they would get if it were the collector's,
                and what is stored are actions that mean the same in the convention and dtype of the collector's own.
                Their `version` is -1. It has to return the extras of the collector's own policy; others are left out.
                The state of a recurrent collector's policy is the initial one meanwhile, and when it goes on. `policy`
                itself begins with its initial state in each call. Workers get a copy of it for each call.

        Raises:
            ConfigError: `count` is not a positive integer, the buffer is for other rows, or `policy` is none or cannot
                be sent to workers; nothing is stepped then.
            EnvironmentFailure, PolicyError: the environments or the policy failed, or `policy` does not return what the
                buffer has columns for; what was added stays.

        Example:
            >>> import outrider
            >>> with outrider.make_vec("CartPole-v1", 4) as envs:
            ...     collector = outrider.Collector(envs, lambda obs: (obs[:, 2] > 0).astype(int), seed=0)
            ...     replay = collector.new_replay(1_000)
            ...     collector.fill(replay, 200, outrider.RandomPolicy(envs.single_action_space))
            ...     collector.fill(replay, 145)
            200
            145
        """
        check_request(count, "fill(replay, count)", 1)
        other = None if policy is None else as_policy(policy)
        check_rows(replay.spec, self.spec)
        with self._decided_by(other):
            left = count
            while left >= self.num_envs:
                left -= replay.extend(self.rollout(min(left // self.num_envs, LONGEST_BLOCK)))
            if left:
                replay.extend(self.steps(left))
        return count

    def new_replay(
        self,
        capacity: int,
        *,
        view: View | None = None,
        sampler: Sampler | None = None,
        storage: Storage | str = "memory",
        seed: int | None = None,
    ) -> ReplayBuffer:
        """A replay buffer for the rows of this collector; see `outrider.ReplayBuffer` for the arguments."""
        return ReplayBuffer(capacity, self.spec, view=view, sampler=sampler, storage=storage, seed=seed)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | Sequence[dict[str, Any] | None] | None = None
    ) -> None:
        """Reset every lane. Running episodes are cut: neither terminated nor truncated, and nothing joins them.

        Args:
            seed: new run seed for the environments; None lets their generators go on.
            options: passed to the resets, one dict for all lanes or a sequence with one for each.

        Raises:
            ConfigError: a bad seed, or not one dict for each lane.
        """
        self._check_open()
        seeds = None if seed is None else lane_seeds(resolve_seed(seed), np.arange(self.num_envs))
        self._reset(seeds, [options] * self.num_envs if isinstance(options, dict) else options)

    @property
    def spec(self) -> StepSpec:
        """Shapes and dtypes of the rows, spaces and number of lanes.

        Reading it for the first time makes the first reset and the first decision; both are kept for the first step.
        Of infos it says what is known by now: a key that has not come yet is taken to be a number.
        """
        self._check_open()
        return self._spec()

    @property
    def stats(self) -> CollectStats:
        """A snapshot of counts, returns, lengths, speed and where the time went."""
        return self._recorder.snapshot(self._tape.count)

    def publish(self, weights: Tree) -> int:
        """Give the policy new weights; return the version that rows decided from now on will have.

        Raises:
            PolicyError: the policy takes none, or not these.
        """
        self._check_open()
        return self._load(weights)

    def close(self) -> None:
        """Discard what was not handed out (see `stats.discarded`) and end what was started. May be called twice."""
        if not self._closed:
            self._closed = True
            self._recorder.discarded += self._tape.discard()
            self._end()

    def _check_open(self) -> None:
        check_open(closed=self._closed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _hand_out(self, take: Callable[[], Record]) -> Record:
        """Take rows off the tape as a whole; count those that an interrupt keeps from reaching anybody."""
        before = self._tape.count
        try:
            with undisturbed():
                return take()
        except KeyboardInterrupt:
            self._recorder.discarded += before - self._tape.count
            raise

    def _reach(self, length: int, lanes: int) -> None:
        """Let at least `lanes` lanes have `length` rows on the tape."""
        self._advance(max(0, length - self._tape.fewest(lanes)))

    def _lanes_left(self) -> np.ndarray:
        """The lanes that there still are, int64."""
        return np.arange(self.num_envs)

    def _gather(self, count: int) -> None:
        """Let there be at least `count` rows on the tape."""
        # Once is enough, but where some rows are dummies.
        while self._tape.count < count:
            self._advance(-(-(count - self._tape.count) // self.num_envs))

    @contextmanager
    def _decided_by(self, policy: Policy | None) -> Iterator[None]:
        """Let another policy decide meanwhile; None: the collector's own."""
        if policy is None:
            yield
            return
        try:
            self._stand_in(policy)
            yield
        finally:
            if not self._closed:
                self._stand_in(None)

    @abstractmethod
    def _advance(self, turns: int) -> None:
        """Let every lane take `turns` steps, and put the rows on the tape."""

    @abstractmethod
    def _episodes(self, count: int, *, per_lane: bool) -> Episodes:
        """Cut what runs, then run `count` episodes."""

    @abstractmethod
    def _reset(self, seeds: list[int] | None, options: Sequence[dict[str, Any] | None] | None) -> None:
        """Cut what runs, then reset every lane."""

    @abstractmethod
    def _spec(self) -> StepSpec:
        """Find out what rows look like."""

    @abstractmethod
    def _load(self, weights: Tree) -> int:
        """Let the policy take weights; return their version."""

    @abstractmethod
    def _stand_in(self, policy: Policy | None) -> None:
        """Let another policy decide from now on, the rows being known; None: the collector's own again."""

    @abstractmethod
    def _end(self) -> None:
        """End what the collector itself has started."""
