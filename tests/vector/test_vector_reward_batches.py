"""Vector rewards of environments that somebody else has vectorised, or that are no Gymnasium environments."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import outrider
from outrider.errors import ConfigError, EnvironmentFailure
from outrider.interop import from_dm_env
from outrider.testing.rewards import Declared, Objectives, judge_objectives, pair
from outrider.testing.traced import TracedPolicy

MODES = (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED)


class Copied(Objectives):
    """Its observations are new arrays: Gymnasium's vector environments keep the last one without a copy."""

    def _observe(self):
        return super()._observe().copy()


class VectorRewards(SyncVectorEnv):
    """What MO-Gymnasium makes of Gymnasium's: room for as many rewards as there are objectives."""

    def __init__(self, factories, mode=AutoresetMode.SAME_STEP):
        super().__init__(factories, autoreset_mode=mode)
        self.reward_space = self.envs[0].unwrapped.reward_space
        self._rewards = np.zeros((self.num_envs, *self.reward_space.shape))


@pytest.mark.parametrize("mode", MODES)
def test_rewards_of_a_batch_are_collected(mode):
    batch = VectorRewards([partial(Copied, (1, 2, 3))] * 3, mode)
    with outrider.make_vec(batch) as envs, outrider.Collector(envs, TracedPolicy(), seed=1) as collector:
        assert envs.reward_space.shape == (2,)
        rollout = collector.rollout(12)
        rollout.check()
        assert rollout.reward.shape == (12, 3, 2)
        assert not rollout.reward[~rollout.valid].any()
        assert rollout.valid.all() == (mode != AutoresetMode.NEXT_STEP)
        judge_objectives(rollout.flatten())
        episodes = collector.episodes(5)
        judge_objectives(episodes.flatten())
        assert collector.stats.returns.shape == (collector.stats.episodes, 2)


@pytest.mark.parametrize("mode", MODES[:2])
def test_a_step_gives_the_rewards_of_the_batch(mode):
    batches = [VectorRewards([partial(Copied, (1, 2, 3))] * 2, mode) for _ in range(2)]
    with outrider.make_vec(batches[0]) as ours:
        theirs = batches[1]
        ours.reset(seed=3)
        theirs.reset(seed=3)
        for _ in range(9):
            found, expected = (envs.step(np.ones(2, np.int64))[1] for envs in (ours, theirs))
            np.testing.assert_array_equal(found, expected)
        theirs.close()


def test_a_wrapper_of_the_batch_may_declare_them():
    class Doubled(gymnasium.vector.VectorWrapper):
        reward_space = spaces.Box(-9.0, 9.0, (4,))

        def step(self, actions):
            obs, reward, *rest = self.env.step(actions)
            return obs, np.tile(reward, (1, 2)), *rest

    batch = VectorRewards([partial(Declared, np.array([1.0, 2.0]), pair())] * 2)
    with outrider.make_vec(Doubled(batch)) as envs:
        envs.reset()
        assert envs.step(np.zeros(2, np.int64))[1].tolist() == [[1.0, 2.0, 1.0, 2.0]] * 2


def test_rewards_of_another_shape_are_refused():
    batch = VectorRewards([partial(Declared, np.ones(2), pair())] * 3)
    batch.reward_space = spaces.Box(-9.0, 9.0, (4,))
    with outrider.make_vec(batch) as envs:
        envs.reset()
        with pytest.raises(EnvironmentFailure, match=r"expected shape \(3, 4\).*found shape \(3, 2\)"):
            envs.step(np.zeros(3, np.int64))


def test_rewards_that_are_not_declared_are_refused():
    batch = VectorRewards([partial(Declared, np.ones(2), pair())] * 3)
    batch.reward_space = None
    with outrider.make_vec(batch) as envs:
        envs.reset()
        with pytest.raises(EnvironmentFailure, match=r"expected 3 numbers.*reward_space"):
            envs.step(np.zeros(3, np.int64))


def test_a_batch_that_declares_what_is_none():
    batch = VectorRewards([partial(Declared, np.ones(2), pair())] * 3)
    batch.reward_space = spaces.Box(-1.0, 1.0, (3, 2))
    with pytest.raises(ConfigError, match="reward_space of VectorRewards"):
        outrider.make_vec(batch)
    batch.close()


def test_a_reward_spec_of_dm_env_declares_them():
    dm_env = pytest.importorskip("dm_env")

    class Two(dm_env.Environment):
        """Has two rewards in each step, and one more where it is told so."""

        def __init__(self, count=2):
            self.count = count

        def reset(self):
            return dm_env.restart(np.zeros(1))

        def step(self, action):
            return dm_env.transition(np.arange(1.0, self.count + 1), np.ones(1))

        def observation_spec(self):
            return dm_env.specs.Array((1,), np.float64)

        def action_spec(self):
            return dm_env.specs.DiscreteArray(2)

        def reward_spec(self):
            return dm_env.specs.BoundedArray((2,), np.float32, -1.0, [1.0, 5.0])

    with outrider.make_vec(lambda: from_dm_env(Two()), 3) as envs:
        assert envs.reward_space == spaces.Box(np.full(2, -1.0), np.array([1.0, 5.0]), (2,), np.float64)
        envs.reset()
        assert envs.step(np.zeros(3, np.int64))[1].tolist() == [[1.0, 2.0]] * 3
    with outrider.make_vec(lambda: from_dm_env(Two(3)), 1) as envs:
        envs.reset()
        with pytest.raises(EnvironmentFailure, match=r"expected shape \(2,\)"):
            envs.step(np.zeros(1, np.int64))
