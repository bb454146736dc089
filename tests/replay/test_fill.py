"""Collectors that fill a replay buffer."""

from contextlib import ExitStack, contextmanager
from functools import partial

import gymnasium
import numpy as np
import pytest

import outrider
from outrider.errors import ConfigError
from outrider.testing.traced import Traced, TracedPolicy


@contextmanager
def inline(plan):
    with outrider.make_vec(plan) as envs, outrider.Collector(envs, TracedPolicy(), seed=0) as collector:
        yield collector


@contextmanager
def own_pace(plan):
    backend = outrider.Processes(2, "fork", wait_for=1)
    with (
        outrider.make_vec(plan, backend=backend) as envs,
        outrider.Collector(envs, TracedPolicy(), seed=0) as collector,
    ):
        yield collector


def parallel(plan):
    backend = outrider.Processes(start_method="fork")
    return outrider.ParallelCollector(plan, TracedPolicy, workers=2, backend=backend, seed=0)


@pytest.mark.parametrize("make", (inline, own_pace, parallel))
@pytest.mark.parametrize("count", (1, 4, 145, 700))
def test_exactly_as_many_steps_as_asked_for(make, count):
    with make(outrider.Envs(partial(Traced, (1, 2, 3, 5)), 4)) as collector:
        replay = collector.new_replay(10_000, seed=0)
        assert collector.fill(replay, count) == len(replay) == count
        assert collector.stats.steps == count + collector.stats.carried
        collector.fill(replay, 3)
        replay.check()
        steps = everything(replay)
        # An observation is (episode of the lane, step, ...): what stands behind a step is one further.
        assert (steps.next_obs[:, 0] == steps.obs[:, 0]).all()
        assert (steps.next_obs[:, 1] == steps.obs[:, 1] + 1).all()
        told = steps.extras["told"][2]
        for lane in range(4):
            mine = np.sort(told[steps.env_id == lane])
            assert mine.tolist() == list(range(len(mine)))


def everything(replay):
    """All that a buffer holds."""
    serials = replay._ring.serials()
    return replay._look.gather(serials, np.ones(len(serials)), np.random.default_rng())


def test_a_buffer_for_other_rows_is_refused_before_anything_is_stepped():
    with inline(outrider.Envs(Traced, 4)) as collector, inline(outrider.Envs(Traced, 2)) as other:
        with pytest.raises(ConfigError, match="num_envs"):
            collector.fill(other.new_replay(100), 10)
        with pytest.raises(ConfigError, match=r"fill\(replay, count\)"):
            collector.fill(collector.new_replay(100), 0)
        assert collector.stats.steps == 0
        # Fewer lanes than the buffer has room for are no harm.
        assert other.fill(collector.new_replay(100), 10) == 10


def test_two_collectors_with_the_same_ids_are_not_joined():
    with ExitStack() as stack:
        envs = [stack.enter_context(outrider.make_vec("Pendulum-v1", 2)) for _ in range(2)]
        policy = outrider.RandomPolicy(envs[0].single_action_space)
        first, second = (outrider.Collector(one, policy, seed=seed) for seed, one in enumerate(envs))
        replay = first.new_replay(10_000, seed=0)
        joined = []
        for _ in range(20):
            for collector in (first, second):
                rollout = collector.rollout(10)
                replay.extend(rollout)
                joined.append(rollout.flatten())
        whole = outrider.ReplayBuffer(10_000, replay.spec)
        whole.extend(outrider.Steps.concatenate(joined))
    for buffer in (replay, whole):
        buffer.check()
        steps = everything(buffer)
        # In one step the velocity changes by 1.05 at most.
        assert np.abs(steps.next_obs[:, 2] - steps.obs[:, 2]).max() < 1.06


def test_infos_that_the_buffer_has_not_are_left_out():
    plan = outrider.Envs("Taxi-v3" if "Taxi-v3" in gymnasium.registry else "Taxi-v4", 4, info_keys=("prob",))
    with (
        outrider.make_vec(plan) as envs,
        outrider.Collector(envs, outrider.RandomPolicy(envs.single_action_space), seed=0) as collector,
    ):
        replay = collector.new_replay(1000)
        assert collector.fill(replay, 101) == len(replay) == 101
        rollout = collector.rollout(20)
        with_infos = outrider.ReplayBuffer(1000, outrider.StepSpec.of(rollout))
        assert with_infos.extend(rollout) == 80
        assert collector.fill(with_infos, 50) == 50
        assert everything(with_infos).info.keys() == {"prob", "_prob"}
