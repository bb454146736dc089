"""Vector environments of Gymnasium whose lanes have Boxes of equal shape and dtype with different bounds."""

from functools import partial

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space

import outrider
from outrider.errors import ConfigError
from outrider.testing.envs import Sampled

MAKERS = (SyncVectorEnv, partial(AsyncVectorEnv, shared_memory=False, context="fork"))


def box(bound):
    return spaces.Box(0, bound, (2,), np.float32)


def source(make, bounds, observation_mode):
    factories = [partial(Sampled, box(bound), spaces.Discrete(3)) for bound in bounds]
    return make(factories, observation_mode=observation_mode, autoreset_mode=AutoresetMode.SAME_STEP)


@pytest.mark.parametrize("make", MAKERS, ids=("sync", "async"))
def test_different_bounds_are_refused_by_name(make):
    theirs = source(make, (1, 2, 3), "different")
    for _ in range(2):
        with pytest.raises(ConfigError, match="observation space: expected one observation space for all lanes"):
            outrider.make_vec(theirs)
    assert theirs.reset(seed=0)[0] in theirs.observation_space, "it stays as it is"
    theirs.close()


@pytest.mark.parametrize("make", MAKERS, ids=("sync", "async"))
@pytest.mark.parametrize(
    ("bounds", "observation_mode"), (((2, 2, 2), "different"), ((1, 2, 3), (batch_space(box(3), 3), box(3))))
)
def test_one_space_that_holds_for_all_lanes_is_taken(make, bounds, observation_mode):
    with outrider.make_vec(source(make, bounds, observation_mode)) as envs:
        assert envs.observation_space == batch_space(envs.single_observation_space, 3)
        assert envs.reset(seed=0)[0] in envs.observation_space
        for _ in range(10):
            assert envs.step(np.zeros(3, np.int64))[0] in envs.observation_space
