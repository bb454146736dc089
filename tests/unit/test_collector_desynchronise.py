"""First episodes of different length, so that lanes do not end together."""

from functools import partial

import numpy as np
import pytest

import outrider
from outrider.errors import ConfigError
from outrider.testing.judging import judge
from outrider.testing.traced import Traced, TracedPolicy

BACKENDS = (
    outrider.Inline(),
    outrider.Processes(2, "fork"),
    outrider.Processes(2, "fork", wait_for=1),
    outrider.Threads(2, wait_for=2),
)


def collect(backend, call, *, seed=5, lanes=8):
    options = outrider.CollectOptions(desynchronise=10)
    plan = outrider.Envs(partial(Traced, (10,), ("terminate",)), lanes)
    with (
        outrider.make_vec(plan, backend=backend) as envs,
        outrider.Collector(envs, TracedPolicy(), seed=seed, options=options) as collector,
    ):
        return call(collector), collector.stats


@pytest.mark.parametrize("backend", BACKENDS, ids=("inline", "processes", "first finishers", "threads"))
def test_lanes_end_apart(backend):
    def two(collector):
        return collector.rollout(15), collector.rollout(25)

    (first, second), stats = collect(backend, two)
    for rollout in (first, second):
        rollout.check()
        judge(rollout.flatten())
    ends = [np.flatnonzero(first.cut[:, lane] | first.terminated[:, lane])[0] for lane in range(8)]
    assert len(set(ends)) > 3
    # One cut a lane at most: none where the first episode has ended by itself in that step.
    assert first.cut.sum(0).max() == 1
    assert not second.cut.any()
    assert not (first.cut & (first.step == 9)).any()
    assert stats.cuts == first.cut.sum()
    # From then on every episode is whole.
    assert (second.terminated == (second.step == 9)).all()


@pytest.mark.parametrize("backend", BACKENDS[1:], ids=("processes", "first finishers", "threads"))
def test_the_cuts_do_not_depend_on_the_backend(backend):
    ours, _ = collect(backend, lambda collector: collector.rollout(15))
    theirs, _ = collect(BACKENDS[0], lambda collector: collector.rollout(15))
    for name in ("cut", "episode_id", "step", "obs", "next_obs", "action"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    others, _ = collect(BACKENDS[0], lambda collector: collector.rollout(15), seed=6)
    assert (others.cut != theirs.cut).any()


def test_steps_are_counted_exactly_and_whole_episodes_are_whole():
    def both(collector):
        return collector.steps(37), collector.episodes(9), collector.steps(50)

    (steps, episodes, after), stats = collect(BACKENDS[0], both)
    assert len(steps) == 37
    assert all(episode.is_complete and len(episode) == 10 for episode in episodes)
    judge(after)
    assert stats.steps == 37 + 90 + 50 + stats.carried


@pytest.mark.parametrize("value", (-1, 2.5, True, "many"))
def test_other_values_are_refused(value):
    with pytest.raises(ConfigError, match="desynchronise"):
        outrider.CollectOptions(desynchronise=value)
