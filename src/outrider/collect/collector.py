"""`Collector`: what users ask for, in terms of the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count as counting
from typing import Any

from outrider.collect.actions import ActionMapName, check_action_map
from outrider.collect.decide import Terms
from outrider.collect.loop import Loop
from outrider.collect.requests import check_open, check_quota, check_request
from outrider.collect.shares import Shares
from outrider.collect.stats import CollectStats
from outrider.errors import ConfigError, explain
from outrider.policies.base import Policy
from outrider.policies.function import as_policy
from outrider.records.episodes import Episodes
from outrider.records.rollout import Rollout
from outrider.records.step_spec import StepSpec
from outrider.records.steps import Steps
from outrider.seeding import lane_seeds, resolve_seed
from outrider.tree import Tree
from outrider.vector.env import VecEnv

__all__ = ["Collector"]


class Collector:
    """Collects experience from vector environments with a policy.

    Calls may be mixed as you like: running episodes go on from one call to the next, and a row that was collected and
    not asked for is handed out by the next call. Steps taken = rows handed out + `stats.carried`, always.

    Args:
        envs: what `make_vec` returned. The collector never closes it.
        policy: a function of the observations [n, ...] that returns actions [n, ...] or a dict with the key "action"
            and extras; or an `outrider.Policy`.
        seed: run seed, from which each lane gets seeds of its own; None for a fresh one (see the attribute).
        action_map: "auto" (clip to finite bounds), "clip", "rescale" (from [-1, 1] to the bounds) or None. The policy's
            own action is what is stored.

    Attributes:
        seed: the run seed.

    Raises:
        ConfigError: an argument that cannot be used.

    Example:
        >>> import outrider
        >>> envs = outrider.make_vec("CartPole-v1", 4)
        >>> collector = outrider.Collector(envs, outrider.RandomPolicy(envs.single_action_space), seed=0)
        >>> rollout = collector.rollout(32)
        >>> rollout.obs.shape, rollout.reward.shape
        ((33, 4, 4), (32, 4))
        >>> len(collector.steps(145)), len(collector.episodes(10))
        (145, 10)
        >>> collector.close(); envs.close()
    """

    def __init__(
        self,
        envs: VecEnv,
        policy: Policy | Callable[[Any], Any],
        *,
        seed: int | None = None,
        action_map: ActionMapName = "auto",
    ) -> None:
        if not isinstance(envs, VecEnv):
            raise ConfigError(
                explain(
                    expected="what outrider.make_vec returns",
                    found=type(envs).__name__,
                    where="Collector(envs, ...)",
                    fix="call outrider.make_vec(env, num_envs) first",
                )
            )
        envs.check_open()
        self.seed = resolve_seed(seed)
        self._envs = envs
        self._loop = Loop(envs, as_policy(policy), Terms(self.seed, check_action_map(action_map)))
        self._closed = False
        envs.arrange_resets(envs.lanes, lane_seeds(self.seed, self._loop.lane_numbers), None)

    def rollout(self, length: int) -> Rollout:
        """Return exactly `length` steps of every lane, [length, num_envs].

        Raises:
            ConfigError: `length` is not a positive integer; nothing is stepped then.
            EnvironmentFailure, PolicyError: the environments or the policy failed; rows collected before stay.
        """
        check_request(length, "rollout(length)", 1)
        self._check_open()
        self._loop.advance(max(0, length - self._loop.tape.fewest()))
        return self._loop.tape.take_rollout(length)

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
            EnvironmentFailure, PolicyError: the environments or the policy failed; rows collected before stay.
        """
        check_request(count, "steps(count)", 1)
        self._check_open()
        self._loop.advance(-(-max(0, count - self._loop.tape.count) // len(self._envs.lanes)))
        return self._loop.tape.take_steps(count)

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
        self._loop.recover()
        self._loop.cut_running()
        carried = self._loop.tape.count
        with self._loop.calls():
            self._loop.run_episodes(Shares(count, self._envs.lanes, per_lane=quota == "per_env"))
        return self._loop.tape.take_episodes(carried)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | Sequence[dict[str, Any] | None] | None = None
    ) -> None:
        """Reset every lane. Running episodes are cut: neither terminated nor truncated, and nothing joins them.

        Args:
            seed: new run seed for the environments; None lets their generators go on.
            options: passed to the resets, one dict for all lanes or a sequence with one for each.
        """
        self._check_open()
        lanes = self._envs.lanes
        seeds = None if seed is None else lane_seeds(resolve_seed(seed), self._loop.lane_numbers)
        self._envs.arrange_resets(lanes, seeds, [options] * len(lanes) if isinstance(options, dict) else options)
        self._loop.reset()

    @property
    def spec(self) -> StepSpec:
        """Shapes and dtypes of the rows, spaces and number of lanes.

        Reading it for the first time makes the first reset and the first decision; both are kept for the first step.
        """
        self._check_open()
        if self._loop.decider.columns is None:
            with self._loop.calls():
                self._loop.ready()
        return self._loop.decider.spec(self._envs)

    @property
    def stats(self) -> CollectStats:
        """A snapshot of counts, returns, lengths, speed and where the time went."""
        return self._loop.ledger.recorder.snapshot(self._loop.tape.count)

    def publish(self, weights: Tree) -> int:
        """Give the policy new weights; return the version that rows decided from now on will have.

        Raises:
            PolicyError: the policy takes none, or not these.
        """
        self._check_open()
        return self._loop.decider.load(weights)

    def close(self) -> None:
        """Discard what was not handed out (see `stats.discarded`). The environments stay open. May be called twice."""
        if not self._closed:
            self._closed = True
            self._loop.ledger.recorder.discarded += self._loop.tape.discard()

    def _check_open(self) -> None:
        check_open(closed=self._closed)
        self._envs.check_open()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
