"""What rollouts cost: those that are held, and no more; given back soon after they are let go."""

import gc
from contextlib import contextmanager
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import outrider

LENGTH, LANES, SHAPE = 40, 4, (128, 128)
ROLLOUT = (LENGTH + 1) * LANES * 128 * 128 * 4
"""Bytes of observations of one rollout: 10.7 million."""


class Frames(gymnasium.Env):
    """Large observations, no page of which is empty."""

    def __init__(self):
        self.observation_space = spaces.Box(0, 1, SHAPE, np.float32)
        self.action_space = spaces.Discrete(2)
        self.frame = np.ones(SHAPE, np.float32)
        self.count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.frame, {}

    def step(self, action):
        self.count += 1
        return self.frame, 1.0, self.count == 15, False, {}


def zeros(obs):
    return np.zeros(len(obs), np.int64)


class Scale:
    """Memory of this process and the workers, shared pages counted once: in rollouts, from a start.

    Of forked workers only what is shared counts: what else they have becomes theirs page by page, whatever we do.
    """

    def __init__(self, pids):
        self.pids = pids or ["self"]
        # What was moved to the disk meanwhile is counted, too; of workers it may be their own.
        self.kind = ("Pss_Shmem:",) if pids else ("Pss_Anon:", "SwapPss:")
        self.start = 0.0
        self.start = self.read()

    def read(self):
        gc.collect()
        total = 0
        for pid in {"self", *self.pids}:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(self.kind))
        return total / ROLLOUT - self.start


PLACES = ("inline", "processes", "parallel")


@contextmanager
def collecting(place):
    """A collector that is warm, how to trim it, and the scale."""
    plan = outrider.Envs(Frames, LANES)
    backend = outrider.Processes(workers=2, start_method="fork")
    if place == "parallel":
        with outrider.ParallelCollector(plan, lambda: zeros, workers=2, backend=backend, seed=0) as collector:
            warm_up(collector)
            yield collector, collector.trim, Scale(collector.worker_pids)
        return
    with outrider.make_vec(plan, backend=outrider.Inline() if place == "inline" else backend) as envs:
        collector = outrider.Collector(envs, zeros, seed=0)
        warm_up(collector)
        yield collector, envs.trim, Scale(envs.worker_pids)
        collector.close()


def warm_up(collector):
    for _ in range(3):
        collector.rollout(LENGTH)


def collect(collector, count):
    for _ in range(count):
        assert collector.rollout(LENGTH).reward.sum() == LENGTH * LANES


@pytest.mark.parametrize("place", PLACES)
def test_what_is_held_costs_what_it_is_and_is_given_back_after_a_few_more(place):
    with collecting(place) as (collector, _, scale):
        collect(collector, 10)
        assert abs(scale.read()) < 1
        held = [collector.rollout(LENGTH) for _ in range(10)]
        collect(collector, 10)
        assert 9 < scale.read() < 11
        del held
        collect(collector, 8)
        assert scale.read() < 1


@pytest.mark.parametrize("place", PLACES)
def test_trim_gives_back_at_once(place):
    with collecting(place) as (collector, trim, scale):
        held = [collector.rollout(LENGTH) for _ in range(10)]
        # One view keeps its whole rollout.
        view = held[4].obs[3, 2]
        del held
        assert scale.read() > 7
        trim()
        assert scale.read() < 1.5
        assert view.min() == view.max() == 1
        del view
        trim()
        assert scale.read() < 1


@pytest.mark.parametrize("place", PLACES)
def test_parts_are_copies_that_keep_no_block(place):
    with collecting(place) as (collector, trim, scale):
        held = [collector.steps(1) for _ in range(9)] + [collector.episodes(1)[:0] for _ in range(3)]
        collect(collector, 8)
        trim()
        # A block or two have rows that were not asked for yet.
        assert scale.read() < 2.5
        assert len(held) == 12


def test_what_is_held_outlives_the_environments():
    with collecting("inline") as (warm, *_):
        collect(warm, 1)
    del warm
    scale = Scale(())
    envs = outrider.make_vec(Frames, LANES)
    collector = outrider.Collector(envs, zeros, seed=0)
    held = [collector.rollout(LENGTH) for _ in range(3)]
    collect(collector, 3)
    collector.close()
    envs.close()
    assert scale.read() < 4
    assert all(rollout.obs.min() == 1 for rollout in held)
    del held, collector, envs
    assert scale.read() < 1
