"""`Collector`: collects in the calling process; the environments run wherever `make_vec` has put them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from outrider.collect.actions import ActionMapName, check_action_map
from outrider.collect.decide import Terms
from outrider.collect.goals import EnoughLanes, EnoughRows, Goal
from outrider.collect.interface import BaseCollector
from outrider.collect.loop import Loop
from outrider.collect.options import CollectOptions
from outrider.collect.order import in_order
from outrider.collect.requests import check_envs
from outrider.collect.shares import Shares
from outrider.errors import ConfigError, explain
from outrider.policies.base import Policy
from outrider.policies.function import as_policy
from outrider.records.episodes import Episodes
from outrider.records.step_spec import StepSpec
from outrider.seeding import FIRST_CUT, lane_seeds, resolve_seed
from outrider.tree import Tree
from outrider.vector.env import VecEnv

__all__ = ["Collector"]


class Collector(BaseCollector):
    """Collects experience from vector environments with a policy; see `BaseCollector` for what can be asked of it.

    Args:
        envs: what `make_vec` returned. The collector never closes it.
        policy: a function of the observations [n, ...] that returns actions [n, ...] or a dict with the key "action"
            and extras; or an `outrider.Policy`.
        seed: run seed, from which each lane gets seeds of its own; None for a fresh one (see the attribute).
        action_map: "auto" (clip to finite bounds), "clip", "rescale" (from [-1, 1] to the bounds) or None. The policy's
            own action is what is stored.
        options: what is rarely needed.

    Where the backend's `wait_for` is less than the number of lanes, they go at their own pace: the policy decides for
    whichever have arrived, and those that are under way when a call returns stay so. Each lane's rows are the same, in
    the same order. Where the backend makes environments anew after a failure, or goes on without them, the episodes
    that this ends are cut, and a step that was lost is no row.

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
        >>> collector.close()
        >>> envs.close()
    """

    def __init__(
        self,
        envs: VecEnv,
        policy: Policy | Callable[[Any], Any],
        *,
        seed: int | None = None,
        action_map: ActionMapName = "auto",
        options: CollectOptions = CollectOptions(),  # noqa: B008 - it cannot be changed
    ) -> None:
        check_envs(envs, "Collector(envs, ...)")
        envs.check_open()
        _check_lead(envs, options)
        self.seed = resolve_seed(seed)
        self.num_envs = envs.num_envs
        self._envs = envs
        self._options = options
        self._loop = Loop(envs, as_policy(policy), Terms(self.seed, check_action_map(action_map)))
        self._tape = self._loop.tape
        self._recorder = self._loop.ledger.recorder
        if options.desynchronise:
            _check_resets(envs)
            draws = np.array(lane_seeds(self.seed, self._loop.lane_numbers, FIRST_CUT), np.int64)
            self._loop.apart.cut_after(draws % options.desynchronise + 1)
        if seed is not None or envs.driver.takes_seeds:
            envs.arrange_resets(envs.lanes, lane_seeds(self.seed, self._loop.lane_numbers), None)

    def _advance(self, turns: int) -> None:
        # Rows that are there already are handed out even after the environments have failed.
        if turns:
            self._envs.check_open()
            self._loop.advance(turns)

    def _reach(self, length: int, lanes: int) -> None:
        if self._together:
            super()._reach(length, lanes)
        else:
            self._run(self._tape.fewest(lanes) < length, EnoughLanes(length, lanes, self._options.lead))

    def _gather(self, count: int) -> None:
        if self._together:
            super()._gather(count)
        else:
            self._run(self._tape.count < count, EnoughRows(count))

    @property
    def _together(self) -> bool:
        """Whether all lanes take their steps together, and none is to be cut."""
        return self._envs.driver.in_lockstep and not self._loop.apart.is_to_cut

    def _lanes_left(self) -> np.ndarray:
        return self._loop.lane_numbers[self._loop.apart.alive]

    def _run(self, wanted: bool, goal: Goal) -> None:  # noqa: FBT001 - whether there is anything to do
        if wanted:
            self._envs.check_open()
            self._loop.run(goal)

    def _episodes(self, count: int, *, per_lane: bool) -> Episodes:
        self._envs.check_open()
        self._loop.recover()
        self._loop.cut_running()
        carried = self._tape.length
        self._loop.run_episodes(Shares.of(count, self._envs.lanes, self.num_envs, per_lane=per_lane))
        episodes = self._hand_out(lambda: self._tape.take_episodes(carried))
        return episodes if self._envs.driver.in_lockstep else in_order(episodes)

    def _reset(self, seeds: list[int] | None, options: Sequence[dict[str, Any] | None] | None) -> None:
        self._envs.check_open()
        self._loop.recover()
        self._envs.arrange_resets(self._envs.lanes, seeds, options)
        self._loop.reset()

    def _spec(self) -> StepSpec:
        self._envs.check_open()
        return self._loop.spec()

    def _load(self, weights: Tree) -> int:
        return self._loop.decider.load(weights)

    def _stand_in(self, policy: Policy | None) -> None:
        self._loop.stand_in(policy)

    def _end(self) -> None:
        """The environments belong to whoever made them."""


def _check_lead(envs: VecEnv, options: CollectOptions) -> None:
    """Refuse to let lanes run ahead where each step waits for all of them."""
    if options.lead > 1 and envs.driver.wait_for is None:
        raise ConfigError(
            explain(
                expected="lead=1: the backend of these environments waits for all lanes, so that none can run ahead",
                found=options.lead,
                where="CollectOptions(lead=...)",
                fix="leave it out, or let lanes go at their own pace with e.g. Processes(wait_for=1)",
            )
        )


def _check_resets(envs: VecEnv) -> None:
    """Refuse environments whose first episodes cannot be cut one by one."""
    if not envs.driver.resets_apart:
        raise ConfigError(
            explain(
                expected="environments that Outrider runs, each of which can be reset while the others step",
                found="a vector environment of others",
                where="CollectOptions(desynchronise=...)",
                fix="leave it out, or pass what makes the environments to outrider.make_vec",
            )
        )
