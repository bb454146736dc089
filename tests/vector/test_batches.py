"""The shipped suite over batches of environments that are taken as they are."""

import warnings

import gymnasium
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from helpers.counter_batch import CounterBatch, ForeignArray
from outrider.testing import BatchConformance
from outrider.testing.envs import make_case


class Sync(BatchConformance):
    masks = True

    def source(self):
        return SyncVectorEnv([make_case("nested")] * 3, autoreset_mode=self.mode)


class TestNextStep(Sync):
    mode = AutoresetMode.NEXT_STEP


class TestSameStep(Sync):
    mode = AutoresetMode.SAME_STEP


class TestDisabled(Sync):
    mode = AutoresetMode.DISABLED


class TestWrittenByHand(BatchConformance):
    """Of its own kind of array, written to again and again, reset as a whole with one seed."""

    def source(self):
        return CounterBatch((3, 5, 4), AutoresetMode.NEXT_STEP, wrap=ForeignArray)


class TestWrittenByHandSameStep(BatchConformance):
    def source(self):
        return CounterBatch((3, 5, 4), AutoresetMode.SAME_STEP, "final_observation")


class TestWrittenByHandDisabled(BatchConformance):
    masks = True

    def source(self):
        return CounterBatch((3, 5, 4), AutoresetMode.DISABLED)


class TestVectorised(BatchConformance):
    def source(self):
        return gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="vector_entry_point", max_episode_steps=30)


class TestEnvPool(BatchConformance):
    apart = True
    masks = True
    seeds = False

    def source(self):
        envpool = pytest.importorskip("envpool")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its spaces, about precision
            pool = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=3, seed=7)
            assert pool.observation_space
            return pool
