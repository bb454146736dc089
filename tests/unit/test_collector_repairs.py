"""Faults that were found by attacking the collector, each with what should have happened."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import outrider
from helpers.envs import CounterEnv
from outrider.errors import PolicyError
from outrider.undisturbed import Calm, undisturbed


class SparseInfo(gymnasium.Env):
    """Three steps an episode; lane 0 never has the info, the others have it at the end."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, lane=0):
        self.lane = lane
        self.t = 0
        self.resets = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.resets = 0, self.resets + 1
        return np.array([self.resets], np.float32), {}

    def step(self, action):
        self.t += 1
        info = {"success": True, "where": np.array([self.t, self.lane])} if self.t == 3 and self.lane else {}
        return np.array([self.resets], np.float32), 1.0, self.t == 3, False, info


class SparseInfoOf:
    def __init__(self, lane):
        self.lane = lane

    def __call__(self):
        return SparseInfo(self.lane)


def make_policy():
    return outrider.RandomPolicy(spaces.Discrete(2))


def counter():
    return CounterEnv(100)


def test_infos_that_only_some_workers_have_seen():
    plan = outrider.Envs([SparseInfoOf(lane) for lane in range(3)], info_keys=("success", "where", "never"))
    with outrider.make_vec(plan) as envs, outrider.Collector(envs, make_policy(), seed=0) as collector:
        expected = [collector.episodes(3, quota="per_env"), collector.rollout(4)]
    with outrider.ParallelCollector(plan, make_policy, workers=3, seed=0) as collector:
        found = [collector.episodes(3, quota="per_env"), collector.rollout(4)]
    for one, other in zip(expected, found, strict=True):
        for key, column in one.info.items():
            assert (other.info[key].dtype, other.info[key].shape) == (column.dtype, column.shape), key
            np.testing.assert_array_equal(other.info[key], column)


@pytest.mark.parametrize("first", ("reset", "episodes"))
def test_workers_reset_as_often_as_one_process(first):
    def collect(collector):
        if first == "reset":
            collector.reset()
        return collector.episodes(4, quota="per_env").obs

    plan = outrider.Envs([SparseInfoOf(lane) for lane in range(3)])
    with outrider.make_vec(plan) as envs, outrider.Collector(envs, make_policy(), seed=0) as collector:
        expected = collect(collector)
    with outrider.ParallelCollector(plan, make_policy, workers=2, seed=0) as collector:
        np.testing.assert_array_equal(collect(collector), expected)


def test_a_session_that_fails_does_not_join_episodes():
    class Moody(outrider.Policy):
        bad = False

        def act(self, obs, state, ctx):
            return {"action": np.zeros(len(obs), np.int64)}

        @contextmanager
        def session(self):
            if self.bad:
                raise RuntimeError("not now")
            yield

    policy = Moody()
    with outrider.make_vec(counter, 1) as envs, outrider.Collector(envs, policy, seed=0) as collector:
        collector.rollout(4)
        policy.bad = True
        with pytest.raises(PolicyError, match="session of the policy raised RuntimeError: not now"):
            collector.episodes(1)
        policy.bad = False
        after = collector.rollout(4)
    assert after.obs[:, 0, 0].tolist() == [0, 1, 2, 3, 4]
    assert after.step[:, 0].tolist() == [0, 1, 2, 3]


class BoxActions(gymnasium.Env):
    observation_space = spaces.Discrete(2)

    def __init__(self, low, high, dtype):
        self.action_space = spaces.Box(low, high, (1,), dtype)
        self.got = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        self.got.append(action)
        return 0, 0.0, False, False, {}


def given_and_got(low, high, dtype, action, action_map="auto"):
    """Let a policy return `action`; return what the environment received."""
    env = BoxActions(low, high, dtype)
    with (
        outrider.make_vec(lambda: env, 1) as envs,
        outrider.Collector(envs, lambda obs: np.array([[action]]), action_map=action_map) as collector,
    ):
        assert collector.rollout(1).action[0, 0, 0] == action
    return env.got[0][0]


def test_integer_boxes_keep_their_values():
    big = np.iinfo(np.uint64).max
    assert given_and_got(-100, 100, np.int8, np.int64(300)) == 100
    assert given_and_got(0, big, np.uint64, np.int64(2**62 + 1)) == 2**62 + 1
    assert given_and_got(-10, np.iinfo(np.int64).max, np.int64, np.uint64(2**63 + 5)) == 2**63 - 1
    assert given_and_got(-100, 100, np.int8, np.int64(7), None) == 7


def test_an_integer_that_the_box_cannot_hold_is_refused_where_nothing_is_mapped():
    with pytest.raises(PolicyError, match="lane 0"):
        given_and_got(-100, 100, np.int8, np.int64(300), None)


def test_small_integers_that_count_from_zero():
    class FromZero(outrider.Policy):
        actions = "index"

        def act(self, obs, state, ctx):
            return {"action": np.full(len(obs), 2, np.uint8)}

    got = []

    class Shifted(BoxActions):
        def __init__(self):
            super().__init__(0, 1, np.float32)
            self.action_space = spaces.Discrete(3, start=-1)
            self.got = got

    with outrider.make_vec(Shifted, 1) as envs, outrider.Collector(envs, FromZero()) as collector:
        collector.rollout(2)
    assert got == [1, 1]


def test_ctrl_c_is_held_back_while_books_are_kept():
    seen = []

    def keep_books():
        with undisturbed():
            os.kill(os.getpid(), signal.SIGINT)
            seen.append("the end of the block")

    with pytest.raises(KeyboardInterrupt):
        keep_books()
    assert seen == ["the end of the block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_is_held_back_in_the_blocks_of_a_stretch_and_nowhere_else():
    seen, calm = [], Calm()

    def interrupt(name):
        os.kill(os.getpid(), signal.SIGINT)
        seen.append(name)

    def work(*, in_block):
        with calm.stretch(), calm.stretch():
            if in_block:
                with calm:
                    interrupt("the end of the block")
            interrupt("behind the block")

    for in_block in (True, False):
        with pytest.raises(KeyboardInterrupt):
            work(in_block=in_block)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert seen == ["the end of the block"]


def test_a_stretch_leaves_alone_what_others_have_installed_in_it():
    def theirs(*arguments):
        pass

    with Calm().stretch():
        signal.signal(signal.SIGINT, theirs)
    assert signal.signal(signal.SIGINT, signal.default_int_handler) is theirs


@pytest.mark.parametrize("where", (lambda loop: (loop, "_put_down"), lambda loop: (loop.decider, "prepare")))
def test_a_torn_end_of_a_call_begins_anew(monkeypatch, where):
    with outrider.make_vec(counter, 2) as envs, outrider.Collector(envs, make_policy(), seed=0) as collector:
        collector.rollout(3)
        loop = collector._loop

        def torn(*arguments):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(*where(loop), torn)
            with pytest.raises(KeyboardInterrupt):
                collector.rollout(3)
        after = collector.rollout(3)
        after.check()
        assert after.obs[:, 0, 0].tolist() == [0, 1, 2, 3]
        stats = collector.stats
        assert stats.steps == 12 + stats.carried


def test_a_forked_child_leaves_the_memory_of_its_parent_alone():
    with outrider.make_vec(counter, 2, backend=outrider.Processes(workers=1)) as envs:
        collector = outrider.Collector(envs, make_policy(), seed=0)
        rollout = collector.rollout(500)
        before = rollout.obs.copy()
        child = os.fork()
        if child == 0:
            del rollout
            envs.trim()
            os._exit(0)
        os.waitpid(child, 0)
        np.testing.assert_array_equal(rollout.obs, before)


def test_two_hundred_vector_environments_at_once():
    held = [outrider.make_vec(counter, 1) for _ in range(200)]
    assert np.ones(25_000_000, np.int8).all()
    for envs in held:
        envs.close()


def test_a_failing_policy_says_what_it_was_given():
    def single(obs):
        return int(obs[2] > 0)

    with (
        outrider.make_vec("CartPole-v1", 3) as envs,
        outrider.Collector(envs, single) as collector,
        pytest.raises(PolicyError, match="the policy raised TypeError") as caught,
    ):
        collector.rollout(1)
    assert "a batch of 3 rows (obs: (3, 4) float32)" in caught.value.__notes__[0]
