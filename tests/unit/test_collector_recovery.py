"""Collectors over environments that are made anew after a failure, or gone on without."""

import os
import signal
from functools import partial

import gymnasium
import numpy as np
import pytest

import outrider
from outrider.errors import ConfigError, EnvironmentFailure
from outrider.testing.traced import TracedPolicy

pytestmark = pytest.mark.filterwarnings("ignore:.*(made anew|goes on without|dropped|restart):RuntimeWarning")


class Mortal(gymnasium.Env):
    """Counts steps since its reset, and lives lived in this process; fails in the steps that are told.

    Episodes have `length` steps. An observation is (life, steps since the reset, 0).
    """

    taken = 0
    lives = 0

    def __init__(self, fails=(), length=10, how="raise"):
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = gymnasium.spaces.Discrete(5)
        self.fails, self.length, self.how = fails, length, how
        Mortal.lives += 1
        self.life, self.count = Mortal.lives, 0

    def _observe(self):
        return np.array([self.life, self.count, 0.0])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._observe(), {}

    def step(self, action):
        Mortal.taken += 1
        if Mortal.taken in self.fails:
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("told to fail")
        self.count += 1
        return self._observe(), 1.0, self.count >= self.length, False, {}


@pytest.fixture(params=(None, 1), ids=("together", "apart"))
def wait_for(request):
    return request.param


def make(wait_for, on_failure, *lanes):
    backend = outrider.Processes(len(lanes), wait_for=wait_for, start_method="fork", on_failure=on_failure)
    return outrider.make_vec([partial(Mortal, *lane) for lane in lanes], backend=backend)


def check(steps):
    """No row joins two lives, the policy saw what is stored, and every cut says so."""
    steps.check()
    np.testing.assert_array_equal(steps.extras["seen"], steps.obs)
    np.testing.assert_array_equal(steps.obs[:, 1], steps.step)
    np.testing.assert_array_equal(steps.next_obs[:, :2], steps.obs[:, :2] + [0, 1])
    np.testing.assert_array_equal(steps.state["count"], steps.step)
    np.testing.assert_array_equal(steps.next_state["count"], steps.step + 1)


@pytest.mark.parametrize("way", ("rollout", "steps", "lanes"))
def test_failures_at_two_steps_are_two_cuts(wait_for, way):
    with (
        make(wait_for, outrider.Restart(max_restarts=3), ((7, 19),), ()) as envs,
        outrider.Collector(envs, TracedPolicy(), seed=0) as collector,
    ):
        call = {
            "rollout": lambda: collector.rollout(4).flatten(),
            "steps": lambda: collector.steps(7),
            "lanes": lambda: collector.rollout(3, lanes=1).flatten(),
        }[way]
        parts = []
        while sum((part.env_id == 0).sum() for part in parts) < 30:
            parts.append(call())
        steps = outrider.Steps.concatenate(parts)
        check(steps)
        assert envs.driver.restarts == 2
        assert collector.stats.steps == len(steps) + collector.stats.carried
        mine, other = steps[steps.env_id == 0], steps[steps.env_id == 1]
        # Steps 7 and 19 did not happen: six steps of the first life, eleven of the second.
        assert mine.step.tolist()[:24] == [*range(6), *range(10), 0, *range(7)]
        assert not other.cut.any()
        assert (other.obs[:, 0] == 1).all()
        # A cut can be marked only in a row that was not handed out before it was known.
        assert mine.cut[[5, 16]].sum() == mine.cut.sum()
        assert collector.stats.cuts == 2
        assert len(set(zip(steps.episode_id.tolist(), steps.step.tolist(), strict=True))) == len(steps)


def test_a_cut_in_the_middle_of_a_rollout_keeps_the_true_last_observation(wait_for):
    with (
        make(wait_for, outrider.Restart(max_restarts=1), ((7,),), ()) as envs,
        outrider.Collector(envs, TracedPolicy(), seed=0) as collector,
    ):
        rollout = collector.rollout(12)
        rollout.check()
        assert rollout.cut[:, 0].tolist() == [False] * 5 + [True] + [False] * 6
        assert rollout.obs[:, 0, :2].tolist() == [[1, t] for t in range(6)] + [[2, t] for t in range(7)]
        assert rollout.next_obs[5, 0].tolist() == [1, 6, 0]
        assert rollout.step[:, 0].tolist() == [*range(6), *range(6)]


def test_a_worker_that_is_killed_loses_its_lanes_and_no_others(wait_for):
    with (
        make(wait_for, outrider.Restart(max_restarts=2), ((5,), 10, "kill"), ()) as envs,
        outrider.Collector(envs, TracedPolicy(), seed=0) as collector,
    ):
        rollout = collector.rollout(9)
        check(rollout.flatten())
        assert rollout.step[:, 0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0]
        assert rollout.step[:, 1].tolist() == list(range(9))
        assert envs.driver.restarts == 2


def test_episodes_that_are_lost_are_run_again(wait_for):
    with (
        make(wait_for, outrider.Restart(max_restarts=3), ((3, 13), 4), ((), 4)) as envs,
        outrider.Collector(envs, TracedPolicy(), seed=0) as collector,
    ):
        episodes = collector.episodes(8, quota="per_env")
        episodes.check()
        assert len(episodes) == 8
        assert all(episode.is_complete for episode in episodes)
        assert np.diff(episodes.boundaries).tolist() == [4] * 8
        assert np.bincount(episodes.env_id).tolist() == [4, 4]
        # What was taken of the lost ones is still there, and ends in a cut.
        assert collector.stats.carried == collector.stats.steps - 32
        rest = collector.steps(collector.stats.carried)
        check(rest)
        assert rest.cut.sum() == 2


def test_it_is_over_when_an_environment_fails_too_often(wait_for):
    with make(wait_for, outrider.Restart(max_restarts=2), (range(100),), ()) as envs:
        collector = outrider.Collector(envs, TracedPolicy(), seed=0)
        with pytest.raises(EnvironmentFailure, match="told to fail"):
            collector.rollout(20)


def test_lanes_that_are_dropped_are_missing_from_then_on(wait_for):
    with (
        make(wait_for, outrider.Drop(), ((4,),), (), ()) as envs,
        outrider.Collector(envs, TracedPolicy(), seed=0) as collector,
    ):
        whole = collector.rollout(3)
        assert whole.env_id.tolist() == [0, 1, 2]
        rollout = collector.rollout(5)
        rollout.check()
        assert rollout.env_id.tolist() == [1, 2]
        assert rollout.step[:, 0].tolist() == [3, 4, 5, 6, 7]
        check(rollout.flatten())
        assert set(collector.steps(20).env_id.tolist()) == {1, 2}
        episodes = collector.episodes(5, quota="per_env")
        assert len(episodes) == 5
        assert set(episodes.env_id.tolist()) == {1, 2}


def test_what_is_gone_with_its_worker_is_passed_over(wait_for):
    with (
        make(wait_for, outrider.Drop(), ((4,), 10, "kill"), (), ()) as envs,
        outrider.Collector(envs, TracedPolicy(), seed=0) as collector,
    ):
        collector.rollout(6)
        collector.reset(seed=3)
        collector.steps(collector.stats.carried or 1)
        assert collector.rollout(4).step.tolist() == [[t, t] for t in range(4)]
        with pytest.raises(outrider.OutriderError, match="lanes \\[0\\]"):
            envs.get_attr("life")
        assert envs.at([1, 2]).get_attr("count") == (4, 4)


def test_the_rows_of_a_lane_that_is_dropped_are_handed_out(wait_for):
    with (
        make(wait_for, outrider.Drop(), ((6,),), ()) as envs,
        outrider.Collector(envs, TracedPolicy(), seed=0) as collector,
    ):
        rollout = collector.rollout(9)
        assert rollout.env_id.tolist() == [1]
        stats = collector.stats
        assert stats.steps == 9 + stats.carried
        steps = collector.steps(stats.carried)
        check(steps)
        mine = steps[steps.env_id == 0]
        assert mine.step.tolist() == list(range(5))
        assert mine.cut.tolist() == [False] * 4 + [True]


def test_a_lane_that_is_dropped_in_the_middle_of_an_episode_leaves_it_to_the_others(wait_for):
    with (
        make(wait_for, outrider.Drop(), ((6,), 4), ((), 4)) as envs,
        outrider.Collector(envs, TracedPolicy(), seed=0) as collector,
    ):
        episodes = collector.episodes(9, quota="per_env")
        assert np.bincount(episodes.env_id).tolist() == [1, 8]
        assert all(episode.is_complete for episode in episodes)


def test_no_rollout_has_fewer_lanes_than_were_asked_for(wait_for):
    with (
        make(wait_for, outrider.Drop(), ((4,),), (), ()) as envs,
        outrider.Collector(envs, TracedPolicy(), seed=0) as collector,
    ):
        with pytest.raises(ConfigError, match=r"at most 2 lanes: 1 of 3 have failed and were dropped, found 3.*fewer"):
            collector.rollout(6, lanes=3)
        before = collector.stats.steps
        assert collector.stats.carried == before >= 12
        with pytest.raises(ConfigError, match="at most 2 lanes"):
            collector.rollout(1, lanes=3)
        assert collector.stats.steps == before
        # What was collected is there, and nothing is missing from it.
        rollout = collector.rollout(6, lanes=2)
        assert rollout.env_id.tolist() == [1, 2]
        assert rollout.step.tolist() == [[t, t] for t in range(6)]
        check(rollout.flatten())
        assert collector.rollout(2).env_id.tolist() == [1, 2]
