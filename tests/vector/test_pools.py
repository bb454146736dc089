"""The suite for pools over both sides of EnvPool, with small observations and with frames."""

import warnings

import pytest

from outrider.testing import PoolConformance

envpool = pytest.importorskip("envpool")


class Pool(PoolConformance):
    name = "CartPole-v1"
    batch_size = 4

    def source(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its spaces, about precision
            pool = envpool.make(
                self.name,
                env_type="gymnasium",
                num_envs=4,
                batch_size=self.batch_size,
                max_episode_steps=self.limit,
                seed=3,
            )
            assert pool.observation_space, pool.action_space  # made when they are first asked for
            return pool


class TestTogether(Pool):
    pass


class TestApart(Pool):
    batch_size = 2


class TestOneByOne(Pool):
    batch_size = 1


class TestFrames(Pool):
    name = "Pong-v5"
    alike = True
    batch_size = 2
