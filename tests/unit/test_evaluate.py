"""Evaluation: what the environments get, and what is refused."""

import gymnasium
import numpy as np
import pytest

import outrider
from outrider.errors import ConfigError


class Torque(gymnasium.Env):
    """Pays the action that it gets, which may be up to 2; three steps."""

    observation_space = gymnasium.spaces.Box(0.0, 3.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.full(1, self.time, np.float32), float(action[0]), self.time == 3, False, {}


def full(obs):
    return np.ones((len(obs), 1), np.float32)


@pytest.mark.parametrize(("action_map", "expected"), (("auto", 3.0), ("rescale", 6.0)))
def test_actions_mean_what_they_mean_to_a_collector(action_map, expected):
    with outrider.make_vec(Torque, 2) as envs:
        assert outrider.evaluate(envs, full, 4, seed=0, action_map=action_map).mean_return == expected


def test_what_cannot_be_used_is_refused_by_the_name_of_the_call(tmp_path):
    film = tmp_path / "film.gif"
    with pytest.raises(ConfigError, match=r"^evaluate\(envs, \.\.\.\): .*make_vec returns, found Torque"):
        outrider.evaluate(Torque(), full, 4, video=film)
    with outrider.make_vec(Torque, 2) as envs, pytest.raises(ConfigError, match=r"action_map.*found 'half'"):
        outrider.evaluate(envs, full, 4, action_map="half", video=film)
    assert not film.exists()
