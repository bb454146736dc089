"""The suite of vector rewards on every backend that there is."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import outrider
from outrider.testing.envs import Counter
from outrider.testing.rewards import Declared, Objectives, RewardConformance, pair
from outrider.testing.traced import Zeros

PAIR = np.array([1.0, 2.0])


class TestInline(RewardConformance):
    def backend(self):
        return outrider.Inline()


class TestProcesses(RewardConformance):
    def backend(self):
        return outrider.Processes(2, "fork")


class TestThreads(RewardConformance):
    def backend(self):
        return outrider.Threads(2)


class TestFirstFinishers(RewardConformance):
    def backend(self):
        return outrider.Processes(2, "fork", wait_for=1)


class TestFirstThreads(RewardConformance):
    def backend(self):
        return outrider.Threads(2, wait_for=1)


@pytest.mark.parametrize("method", ("forkserver", "spawn"))
def test_every_start_method_gives_the_same(method):
    def rewards(backend):
        with outrider.make_vec(Objectives, 3, backend=backend) as envs:
            envs.reset(seed=2)
            return [envs.step(np.full(3, action))[1].tolist() for action in (0, 1, 2, 3)]

    assert rewards(outrider.Processes(2, method)) == rewards(outrider.Inline())


class Fragile(Counter):
    """Fails in the second step of each life."""

    reward_space = pair(9.0)

    def step(self, action):
        observation, _, *rest = super().step(action)
        if self.count == 2:
            raise RuntimeError
        return observation, PAIR, *rest


def restarting(*factories):
    backend = outrider.Processes(2, "fork", on_failure=outrider.Restart(max_restarts=9))
    return outrider.make_vec(factories, backend=backend)


def warned():
    return pytest.warns(RuntimeWarning, match="restart")


def test_a_lost_step_has_no_rewards():
    with warned(), restarting(Fragile, partial(Declared, PAIR, pair(9.0))) as envs:
        envs.reset()
        steps = [envs.step(np.zeros(2, np.int64)) for _ in range(3)]
        assert [reward[0].tolist() for _, reward, *_ in steps] == [[1.0, 2.0], [0.0, 0.0], [1.0, 2.0]]
        assert [reward[1].tolist() for _, reward, *_ in steps] == [[1.0, 2.0]] * 3
        assert steps[1][3].tolist() == [True, False]


def test_a_lost_step_is_no_row():
    with (
        warned(),
        restarting(Fragile, Fragile) as envs,
        outrider.Collector(envs, Zeros(), seed=0) as collector,
    ):
        rollout = collector.rollout(4)
        rollout.check()
        assert rollout.reward.tolist() == [[[1.0, 2.0]] * 2] * 4
        # The last ones are cut when the next step fails.
        assert rollout.cut[:3].all()


def test_a_rebuilt_environment_must_declare_the_same(tmp_path):
    class Changing(Fragile):
        """Declares something else in its second life."""

        def __init__(self):
            super().__init__()
            if (tmp_path / "lived").exists():
                self.reward_space = pair(5.0)
            (tmp_path / "lived").touch()

    with (
        warned(),
        restarting(partial(Declared, PAIR, pair(9.0)), Changing) as envs,
    ):
        envs.reset()
        envs.step(np.zeros(2, np.int64))
        with pytest.raises(outrider.errors.EnvironmentFailure, match="reward_space of lane 1"):
            envs.step(np.zeros(2, np.int64))


class Fresh(Declared):
    """Its observations are new arrays, on which Gymnasium's checker insists."""

    def observation(self):
        return super().observation().copy()


@pytest.mark.parametrize("backend", (outrider.Inline(), outrider.Processes(1, "fork")), ids=repr)
def test_registered_environments_draw_no_warning(backend):
    # Gymnasium's checker knows rewards that are numbers only.
    spec = gymnasium.envs.registration.EnvSpec(
        id="Vector-v0", entry_point=Fresh, kwargs={"reward": PAIR, "space": pair(9.0)}, max_episode_steps=2
    )
    with outrider.make_vec(spec, 2, backend=backend) as envs:
        envs.reset()
        assert envs.step(np.zeros(2, np.int64))[1].tolist() == [[1.0, 2.0]] * 2


def test_the_outermost_declaration_counts():
    class Doubled(gymnasium.Wrapper):
        """Has two more objectives, and a declaration that is a property."""

        @property
        def reward_space(self):
            return spaces.Box(-9.0, 9.0, (4,))

        def step(self, action):
            observation, reward, *rest = self.env.step(action)
            return observation, np.tile(reward, 2), *rest

    def made():
        return gymnasium.wrappers.TimeLimit(Doubled(Declared(PAIR, pair(9.0))), 5)

    with outrider.make_vec(made, 2) as envs:
        envs.reset()
        assert envs.step(np.zeros(2, np.int64))[1].tolist() == [[1.0, 2.0, 1.0, 2.0]] * 2


def test_a_number_in_an_array_that_is_cleared_by_the_reset():
    class Reused(Counter):
        """Returns its own array of one number."""

        def reset(self, *, seed=None, options=None):
            self.reward = np.zeros(1)
            self.kept = self.reward
            return super().reset(seed=seed, options=options)

        def step(self, action):
            observation, reward, *rest = super().step(action)
            reward[0] = self.count
            return observation, reward, *rest

    class Cleared(Reused):
        """The same array for life."""

        def reset(self, *, seed=None, options=None):
            kept = getattr(self, "kept", None)
            found = super().reset(seed=seed, options=options)
            if kept is not None:
                kept[:] = -1.0
                self.reward = self.kept = kept
            return found

    with outrider.make_vec(partial(Cleared, 2), 2) as envs:
        envs.reset()
        found = [envs.step(np.zeros(2, np.int64))[1].tolist() for _ in range(4)]
    assert found == [[1.0, 1.0], [2.0, 2.0]] * 2
