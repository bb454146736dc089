"""The rows that `VecEnv.step` lends for large observations."""

from functools import partial

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import outrider
from outrider.errors import ConfigError, EnvironmentFailure
from outrider.testing.envs import Counter

LARGE = (200, 200)


class Failing(Counter):
    def step(self, action):
        if self.count == 2:
            raise RuntimeError("told to fail")
        return super().step(action)


def test_rows_of_a_step_that_is_refused_go_back():
    source = SyncVectorEnv([partial(Counter, 9, LARGE)] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    with outrider.make_vec(source) as envs:
        own = envs.store.pool.rows_out
        for _ in range(3):
            with pytest.raises(ConfigError, match="reset them first"):
                envs.step([0, 0])
            assert envs.store.pool.rows_out == own
        first = envs.reset()[0]
        obs = envs.step([0, 0])[0]
        assert envs.store.pool.rows_out == own + 4
        del obs
        envs.step([0, 0])
        assert envs.store.pool.rows_out == own + 4, "those of the last step are kept"
        assert not first.any()


@pytest.mark.filterwarnings("ignore:lane 1 is dropped:RuntimeWarning")
def test_rows_in_which_lanes_stand_after_a_failure_are_nobody_elses():
    backend = outrider.Processes(2, "fork", on_failure=outrider.Drop())
    with outrider.make_vec([partial(Counter, 9, LARGE), partial(Failing, 9, LARGE)], backend=backend) as envs:
        envs.reset()
        for _ in range(2):
            last = envs.step([0, 0])[0]
        with pytest.raises(EnvironmentFailure, match="told to fail"):
            envs.step([0, 0])
        assert envs.dropped == (1,)
        assert np.unique(last).tolist() == [2]
        row = int(envs._rows[0])
        others = [envs.store.pool.take(4) for _ in range(3)]
        assert not any(base <= row < base + 4 for base in others)
        assert np.unique(envs.store.obs[row]).tolist() == [3]
        for base in others:
            envs.store.pool.give_back(base, 4)
        # The other lane goes on from there.
        envs.send(np.zeros(1, np.int64), [0])
        assert np.unique(envs.recv().obs).tolist() == [4]
