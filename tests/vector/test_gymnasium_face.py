"""Gymnasium's interface on every backend, and beside Gymnasium's own vector environments and wrappers."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers

import outrider
from outrider.testing import GymnasiumConformance
from outrider.testing.envs import Counter, make_case, same
from outrider.testing.gymnasium_face import BY_MODE, Informed, walk


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


WRAPPERS = {
    "statistics": wrappers.RecordEpisodeStatistics,
    "clipped rewards": lambda envs: wrappers.ClipReward(envs, -0.5, 0.5),
    "clipped actions": wrappers.ClipAction,
    "normal rewards": wrappers.NormalizeReward,
    "list of infos": wrappers.DictInfoToList,
    "rescaled actions": lambda envs: wrappers.RescaleAction(envs, np.float32(-1), np.float32(1)),
}
ONLY_NEXT_STEP = {
    "normal observations": wrappers.NormalizeObservation,
    "flat observations": wrappers.FlattenObservation,
    "other observations": lambda envs: wrappers.RescaleObservation(envs, np.float32(-1), np.float32(1)),
}


@pytest.mark.parametrize(
    ("wrap", "mode"),
    [(wrap, mode) for wrap in WRAPPERS for mode in AutoresetMode]
    + [(wrap, AutoresetMode.NEXT_STEP) for wrap in ONLY_NEXT_STEP],
)
def test_wrappers_of_gymnasium_see_what_they_see_on_gymnasiums(wrap, mode):
    wrapper = {**WRAPPERS, **ONLY_NEXT_STEP}[wrap]
    theirs = wrapper(SyncVectorEnv([bounded] * 3, autoreset_mode=mode))
    with outrider.make_vec(bounded, 3, autoreset_mode=mode, backend=outrider.Inline()) as envs:
        ours = wrapper(envs)
        assert same(ours.reset(seed=1), theirs.reset(seed=1))
        theirs.action_space.seed(0)
        for _ in range(40):
            actions = theirs.action_space.sample()
            mine, reference = ours.step(actions), theirs.step(actions)
            for infos in (mine[-1], reference[-1]):
                if isinstance(infos, dict):
                    infos.get("episode", {}).pop("t", None)  # seconds on the clock
            assert same(mine, reference)
            ended = mine[2] | mine[3]
            if mode is AutoresetMode.DISABLED and ended.any():
                # The reference has a dict of its own, from which it takes the mask.
                assert same(*(one.reset(options={"reset_mask": ended.copy()}) for one in (ours, theirs)))
    theirs.close()


def bounded():
    env = gymnasium.make("Pendulum-v1", max_episode_steps=15)
    env.observation_space = gymnasium.spaces.Box(-8.0, 8.0, (3,), np.float32)
    return env


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
