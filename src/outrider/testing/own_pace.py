"""A suite for collectors whose lanes go at their own pace: what the slow ones keep the fast ones from, and what not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outrider
from outrider.collect.options import CollectOptions
from outrider.errors import ConfigError, OutriderError, PolicyError
from outrider.policies.base import Policy
from outrider.testing.gates import Gate, Gated
from outrider.testing.judging import assert_same, checked, judge
from outrider.testing.traced import Traced, TracedPolicy
from outrider.vector.plan import EnvFactory

__all__ = ["OwnPaceConformance"]


class OwnPaceConformance:
    """Tests of `Collector` over a backend with `wait_for=1` and a worker for each lane.

    Example:
        >>> class TestThreads(OwnPaceConformance):
        ...     def backend(self, workers):
        ...         return outrider.Threads(workers, wait_for=1)
    """

    def backend(self, workers: int) -> Any:
        """The backend with so many workers."""
        raise NotImplementedError

    def vector(self, factories: Sequence[EnvFactory]) -> outrider.VecEnv:
        """Environments with a worker each."""
        return outrider.make_vec(list(factories), backend=self.backend(len(factories)))

    def gated(self, gate: Path, lanes: int) -> AbstractContextManager[outrider.VecEnv]:
        """Environments of which the first waits at a gate in each step."""
        return self.vector([partial(Gated, gate, 3), *[partial(Gated, None, 3)] * (lanes - 1)])

    def test_some_lanes_do_not_wait_for_the_others(self, tmp_path: Path) -> None:
        gate = Gate(tmp_path / "gate")
        with self.gated(gate.path, 3) as envs, gate, outrider.Collector(envs, zeros, seed=0) as collector:
            for _ in range(3):
                rollout = checked(collector.rollout(5, lanes=2))
                assert rollout.env_id.tolist() == [1, 2]
                assert rollout.reward.shape == (5, 2)
            gate.open(5)
            # Nothing was lost meanwhile: the slow lane goes on where it was, the others have rows ahead.
            whole = checked(collector.rollout(5))
            assert whole.env_id.tolist() == [0, 1, 2]
            assert whole.step[:, 0].tolist() == [0, 1, 2, 0, 1]
            assert whole.step[:, 1].tolist() == [0, 1, 2, 0, 1]
            assert (whole.episode_id[:, 1] >> 32).tolist() == [5, 5, 5, 6, 6]

    def test_steps_come_from_whoever_is_ready(self, tmp_path: Path) -> None:
        gate = Gate(tmp_path / "gate")
        with self.gated(gate.path, 3) as envs, gate, outrider.Collector(envs, zeros, seed=0) as collector:
            assert 0 not in checked(collector.steps(40)).env_id
            gate.open(3)
            steps = checked(collector.steps(40))
            while 0 not in steps.env_id:
                steps = checked(collector.steps(40))
            first = steps[steps.env_id == 0]
            assert first.obs[:, 0].tolist() == list(range(len(first)))

    @pytest.mark.parametrize("lead", (1, 3))
    def test_fast_lanes_run_ahead_as_far_as_they_may(self, tmp_path: Path, lead: int) -> None:
        options = CollectOptions(lead=lead)
        gate = Gate(tmp_path / "gate")
        with (
            self.gated(gate.path, 2) as envs,
            gate,
            outrider.Collector(envs, zeros, seed=0, options=options) as collector,
        ):
            gate.open(4)
            assert len(collector.rollout(4)) == 8
            assert collector.stats.carried <= (lead - 1) * 4
            gate.open(4)
            second = checked(collector.rollout(4))
            assert second.step.tolist() == [[1, 1], [2, 2], [0, 0], [1, 1]]

    def test_full_rollouts_are_blocks_and_not_copies(self) -> None:
        with (
            self.vector([partial(Traced, (2, 3, 5), ("terminate",))] * 3) as envs,
            outrider.Collector(envs, TracedPolicy(), seed=0, options=CollectOptions(lead=3)) as collector,
        ):
            for _ in range(5):
                rollout = checked(collector.rollout(6))
                judge(rollout.flatten())
                assert rollout.reward.base is not None
                assert not rollout.reward.flags.owndata

    def test_all_calls_together_lose_nothing_and_stitch_nothing(self) -> None:
        rng = np.random.default_rng(0)
        with (
            self.vector([partial(Traced, (1, 2, 3, 5))] * 3) as envs,
            outrider.Collector(envs, TracedPolicy(), seed=0, options=CollectOptions(lead=2)) as collector,
        ):
            returned, seen = 0, []
            for _ in range(40):
                steps = self.any_call(collector, rng)
                judge(checked(steps))
                returned += len(steps)
                seen += list(zip(steps.episode_id.tolist(), steps.step.tolist(), strict=True))
                assert collector.stats.steps == returned + collector.stats.carried
            assert len(set(seen)) == len(seen)

    def any_call(self, collector: outrider.Collector, rng: np.random.Generator) -> outrider.Steps:
        """What some call returns."""
        which = rng.integers(5)
        if which == 0:
            return collector.rollout(int(rng.integers(1, 9))).flatten()
        if which == 1:
            return collector.rollout(int(rng.integers(1, 9)), lanes=int(rng.integers(1, 4))).flatten()
        if which == 2:
            return collector.steps(int(rng.integers(1, 30)))
        if which == 3:
            return collector.episodes(int(rng.integers(1, 6))).flatten()
        collector.reset()
        return collector.steps(1)

    def test_each_lane_has_the_rows_that_it_has_inline(self) -> None:
        def rows(envs: outrider.VecEnv) -> list[outrider.Steps]:
            with envs, outrider.Collector(envs, TracedPolicy(), seed=4) as collector:
                steps = collector.rollout(60).flatten()
            return [steps[steps.env_id == lane] for lane in range(3)]

        factories = [partial(Traced, (1, 2, 3, 5))] * 3
        for ours, theirs in zip(
            rows(self.vector(factories)), rows(outrider.make_vec(factories, backend=outrider.Inline())), strict=True
        ):
            for name in ("obs", "next_obs", "action", "reward", "episode_id", "step", "state", "next_state"):
                assert_same(getattr(ours, name), getattr(theirs, name), name)

    def test_a_version_is_that_of_the_weights_that_decided(self) -> None:
        with (
            self.vector([partial(Traced, (4,), ("terminate",))] * 3) as envs,
            outrider.Collector(envs, Versioned(), seed=0, options=CollectOptions(lead=3)) as collector,
        ):
            for number in range(1, 9):
                steps = collector.rollout(3).flatten()
                assert_same(steps.version, steps.extras["weights"], "version")
                assert collector.publish(number) == number

    def test_a_failing_policy_leaves_every_lane_where_it_was(self) -> None:
        with self.vector([partial(Traced, (3,), ("terminate",))] * 3) as envs:
            policy = Versioned()
            with outrider.Collector(envs, policy, seed=0) as collector:
                before = collector.rollout(4)
                policy.fails = True
                with pytest.raises(PolicyError, match="ZeroDivisionError"):
                    collector.steps(50)
                policy.fails = False
                after = checked(collector.rollout(5))
                assert ((after.step[0] - before.step[-1]) % 3 == 1).all()
                with pytest.raises(OutriderError):
                    collector.rollout(1, lanes=9)

    def test_environments_in_use_say_so(self, tmp_path: Path) -> None:
        gate = Gate(tmp_path / "gate")
        with self.gated(gate.path, 2) as envs, gate, outrider.Collector(envs, zeros, seed=0) as collector:
            collector.steps(3)
            with pytest.raises(OutriderError, match="under way"):
                envs.step(np.zeros(2, np.int64))
            gate.open()
            collector.reset()
            gate.open(9)
            if collector.stats.carried:
                carried = checked(collector.steps(collector.stats.carried))
                assert carried.cut[-1] or carried.terminated[-1]
            assert collector.rollout(2).step.tolist() == [[0, 0], [1, 1]]

    @pytest.mark.parametrize("lead", (0, -1, 1.5, True))
    def test_a_lead_of_less_than_a_block_is_refused(self, lead: Any) -> None:
        with pytest.raises(ConfigError, match="lead"):
            CollectOptions(lead=lead)


def zeros(obs: np.ndarray) -> np.ndarray:
    """Always the first action."""
    return np.zeros(len(obs), np.int64)


class Versioned(Policy):
    """Says in an extra which weights it has; fails when told to."""

    fails = False

    def __init__(self) -> None:
        self.weights = 0

    def act(self, obs: Any, state: Any, ctx: Any) -> dict[str, Any]:
        if self.fails:
            raise ZeroDivisionError
        return {"action": np.zeros(len(obs), np.int64), "weights": np.full(len(obs), self.weights)}

    def load(self, tree: Any) -> None:
        self.weights = int(tree)
