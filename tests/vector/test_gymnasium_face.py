"""Gymnasium's interface on every backend, and beside Gymnasium's own vector environments and wrappers."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers

import outrider
from outrider.testing import GymnasiumConformance
from outrider.testing.envs import Counter, make_case, same
from outrider.testing.face import BY_MODE, walk
from outrider.testing.face_wrappers import WRAPPINGS, assert_same_on_both, source
from outrider.testing.gymnasium_face import Informed


class TestInline(GymnasiumConformance):
    def backend(self):
        return outrider.Inline()


class TestThreads(GymnasiumConformance):
    def backend(self):
        return outrider.Threads()


class TestProcesses(GymnasiumConformance):
    def backend(self):
        return outrider.Processes(start_method="fork")


class TestFirstFinishers(GymnasiumConformance):
    def backend(self):
        return outrider.Processes(start_method="fork", wait_for=1)


@BY_MODE
@pytest.mark.parametrize("make", (*map(make_case, ("floats", "scalar", "nested")), Informed))
def test_equals_gymnasiums_workers_in_every_mode(make, mode):
    # Its shared memory stays behind until the process ends.
    theirs = AsyncVectorEnv([make] * 3, autoreset_mode=mode, shared_memory=False)
    with outrider.make_vec(make, 3, autoreset_mode=mode, backend=outrider.Inline()) as ours:
        assert same(ours.reset(seed=3), theirs.reset(seed=3))
        walk(ours, theirs, 25)
    theirs.close()


@BY_MODE
def test_workers_of_a_fork_server_equal_gymnasium(mode):
    theirs = SyncVectorEnv([make_case("nested")] * 3, autoreset_mode=mode)
    with outrider.make_vec(make_case("nested"), 3, backend=outrider.Processes(2), autoreset_mode=mode) as ours:
        assert same(ours.reset(seed=3), theirs.reset(seed=3))
        walk(ours, theirs, 25)
    theirs.close()


@pytest.mark.parametrize(
    ("name", "mode"), [(name, mode) for name, wrapping in WRAPPINGS.items() for mode in wrapping.modes]
)
def test_wrappers_of_gymnasium_see_what_they_see_on_gymnasiums(name, mode):
    factory = partial(source, WRAPPINGS[name].space)
    assert_same_on_both(name, mode, outrider.make_vec(factory, 3, autoreset_mode=mode, backend=outrider.Inline()))


def test_statistics_of_the_lanes_that_a_mask_leaves_alone_go_on():
    # Gymnasium's own vector environments take the mask out of the dict that the wrapper looks at afterwards.
    with outrider.make_vec(lambda: Counter(9), 2, autoreset_mode="Disabled", backend=outrider.Inline()) as envs:
        ours = wrappers.RecordEpisodeStatistics(envs)
        ours.reset()
        for _ in range(3):
            ours.step(np.zeros(2, np.int64))
        ours.reset(options={"reset_mask": np.array([True, False])})
        assert ours.episode_lengths.tolist() == [0, 3]


def test_lists_of_frames():
    def make():
        return gymnasium.make("CartPole-v1", render_mode="rgb_array_list")

    with outrider.make_vec(make, 2, backend=outrider.Inline()) as envs:
        envs.reset(seed=0)
        assert [len(frames) for frames in envs.call("render")] == [1, 1]
        envs.step(np.zeros(2, np.int64))
        assert [frames[0].shape for frames in envs.render()] == [(400, 600, 3)] * 2
        assert envs.call("gravity") == (9.8, 9.8)


def test_the_mode_does_not_change_what_is_collected():
    rollouts = []
    for mode in AutoresetMode:
        with outrider.make_vec(make_case("floats"), 3, autoreset_mode=mode, backend=outrider.Inline()) as envs:
            policy = outrider.RandomPolicy(envs.single_action_space)
            with outrider.Collector(envs, policy, seed=0) as collector:
                rollouts.append(collector.rollout(40))
    assert rollouts[0].terminated.any()
    for other in rollouts[1:]:
        for name in ("obs", "action", "reward", "terminated", "truncated", "next_obs"):
            assert same(getattr(other, name), getattr(rollouts[0], name))
