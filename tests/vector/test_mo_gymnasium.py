"""Environments of MO-Gymnasium, which declare vector rewards: on our backends, and beside its own vector env."""

import numpy as np
import pytest

import outrider
from outrider.testing.envs import same

mo_gymnasium = pytest.importorskip("mo_gymnasium")

# Its bounds are float64, for a Box of float32.
pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")

TREASURE = "mo_gymnasium:deep-sea-treasure-v0"


def fruits():
    return mo_gymnasium.make("fruit-tree-v0")


def sea():
    return mo_gymnasium.make("deep-sea-treasure-v0")


@pytest.mark.parametrize(("make", "objectives"), ((sea, 2), (fruits, 6)))
def test_steps_are_those_of_its_own_vector_environment(make, objectives):
    theirs = mo_gymnasium.wrappers.vector.MOSyncVectorEnv([make] * 4)
    backend = outrider.Processes(2, "fork")
    with outrider.make_vec(make, 4, backend=backend, autoreset_mode="NextStep") as ours:
        assert ours.reward_space == theirs.reward_space
        ours.action_space.seed(0)
        assert same(ours.reset(seed=1)[0], theirs.reset(seed=1)[0])
        for _ in range(60):
            actions = ours.action_space.sample()
            found, expected = ours.step(actions), theirs.step(actions)
            assert found[1].shape == (4, objectives)
            assert found[1].dtype == np.float64
            np.testing.assert_array_equal(found[1], expected[1])
            assert all(same(found[i], expected[i]) for i in (0, 2, 3))
    theirs.close()


def test_by_id_without_a_warning():
    with (
        outrider.make_vec(TREASURE, 4) as envs,
        outrider.Collector(envs, outrider.RandomPolicy(envs.single_action_space), seed=0) as collector,
    ):
        rollout = collector.rollout(50)
        rollout.check()
        assert rollout.reward.shape == (50, 4, 2)
        assert (rollout.reward[..., 1] == -1).all()
        episodes = collector.episodes(3)
        assert episodes.returns[:, 1].tolist() == [-float(length) for length in episodes.lengths]


def test_its_own_vector_environment_as_a_source():
    batch = mo_gymnasium.wrappers.vector.MOSyncVectorEnv([sea] * 3)
    with (
        outrider.make_vec(batch) as envs,
        outrider.Collector(envs, outrider.RandomPolicy(envs.single_action_space), seed=0) as collector,
    ):
        rollout = collector.rollout(60)
        rollout.check()
        assert not rollout.valid.all()
        assert (rollout.reward[..., 1] == -1.0 * rollout.valid).all()


def test_a_weighted_sum_is_a_number():
    weight = np.array([0.5, 2.0])
    with outrider.make_vec(lambda: mo_gymnasium.wrappers.LinearReward(sea(), weight), 3) as envs:
        assert envs.reward_space is None
        envs.reset(seed=0)
        assert envs.step(np.full(3, 3))[1].tolist() == [-2.0] * 3
