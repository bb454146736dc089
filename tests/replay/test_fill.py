"""Collectors that fill a replay buffer."""

from contextlib import contextmanager
from functools import partial

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
