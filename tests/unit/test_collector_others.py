"""Collectors that are not alone: others use the environments, interrupts come at bad moments, lanes die while idle."""

import os
import signal
from functools import partial

import gymnasium
import numpy as np
import pytest

import outrider
from outrider.errors import ConfigError
from outrider.testing.gates import Gate, Gated
from outrider.testing.judging import checked, judge
from outrider.testing.traced import Traced, TracedPolicy

BACKENDS = (outrider.Inline(), outrider.Processes(2, "fork"), outrider.Processes(2, "fork", wait_for=1))


def zeros(obs):
    return np.zeros(len(obs), np.int64)


@pytest.mark.parametrize("backend", BACKENDS, ids=("inline", "processes", "first finishers"))
@pytest.mark.parametrize("other", ("reset", "step", "collector"))
def test_what_others_do_to_the_environments_cuts_what_ran(backend, other):
    with outrider.make_vec(partial(Traced, (6,), ("terminate",)), 3, backend=backend) as envs:
        collector = outrider.Collector(envs, TracedPolicy(), seed=0)
        judge(checked(collector.rollout(4).flatten()))
        envs.drain()
        if other == "collector":
            with outrider.Collector(envs, TracedPolicy(), seed=1) as second:
                judge(checked(second.rollout(2).flatten()))
            envs.drain()
        else:
            envs.reset()
            if other == "step":
                envs.step(np.zeros(3, np.int64))
        carried = collector.stats.carried
        if carried:
            judge(checked(collector.steps(carried)))
        after = checked(collector.rollout(5))
        judge(after.flatten())
        assert after.step[0].tolist() == [0, 0, 0]
        assert collector.stats.cuts >= 3
        collector.close()


def test_an_interrupt_at_the_return_is_counted(monkeypatch):
    with (
        outrider.make_vec(partial(Traced, (6,)), 2, backend=outrider.Inline()) as envs,
        outrider.Collector(envs, TracedPolicy(), seed=0) as collector,
    ):
        collector.steps(3)
        take = collector._tape.take_rollout

        def interrupted(length):
            os.kill(os.getpid(), signal.SIGINT)
            return take(length)

        with monkeypatch.context() as patch:
            patch.setattr(collector._tape, "take_rollout", interrupted)
            with pytest.raises(KeyboardInterrupt):
                collector.rollout(4)
        stats = collector.stats
        assert stats.steps == 3 + stats.carried + stats.discarded
        assert stats.discarded == 8
        judge(checked(collector.steps(9)))


@pytest.mark.filterwarnings("ignore:.*dropped:RuntimeWarning")
def test_a_lane_that_dies_while_it_idles_keeps_its_true_last_observation(tmp_path):
    gate = Gate(tmp_path / "gate")
    backend = outrider.Processes(2, "fork", wait_for=1, on_failure=outrider.Drop())
    factories = [partial(Gated, None, 10**6)] * 2 + [partial(Gated, gate.path, 10**6)] * 2
    with (
        outrider.make_vec(factories, backend=backend) as envs,
        gate,
        outrider.Collector(envs, zeros, seed=0) as collector,
    ):
        assert collector.rollout(4, lanes=2).env_id.tolist() == [0, 1]
        assert collector.rollout(4, lanes=2).env_id.tolist() == [0, 1]
        os.kill(envs.worker_pids[0], signal.SIGKILL)
        gate.open(40)
        steps = collector.steps(20)
        steps.check()
        np.testing.assert_array_equal(steps.next_obs, steps.obs + 1)


@pytest.mark.parametrize("mode", ("NextStep", "SameStep"))
def test_a_batch_of_others_may_begin_with_some_of_its_lanes(mode):
    def make():
        return Traced((3,), ("terminate",))

    source = gymnasium.vector.SyncVectorEnv([make] * 3, autoreset_mode=mode)
    with outrider.make_vec(source) as envs, outrider.Collector(envs, TracedPolicy(), seed=0) as collector:
        episodes = collector.episodes(2)
        assert len(episodes) == 2
        assert all(episode.is_complete for episode in episodes)
        with pytest.raises(ConfigError, match="desynchronise"):
            outrider.Collector(envs, TracedPolicy(), options=outrider.CollectOptions(desynchronise=5))
