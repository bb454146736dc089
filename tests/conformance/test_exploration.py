"""Exploration is the same rows of each lane wherever environments and policy run, and by the same count of steps."""

from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest

import outrider
from outrider.testing.traced import Traced


@contextmanager
def central(backend, plan, policy, seed=0):
    with (
        outrider.make_vec(plan, backend=backend) as envs,
        outrider.Collector(envs, policy, seed=seed) as collector,
    ):
        yield collector


@contextmanager
def parallel(workers, plan, policy, seed=0):
    backend = outrider.Processes(start_method="fork")
    with outrider.ParallelCollector(plan, lambda: policy, workers=workers, backend=backend, seed=seed) as collector:
        yield collector


INLINE = partial(central, outrider.Inline())
EVERYWHERE = {
    "threads": partial(central, outrider.Threads(2)),
    "3 processes": partial(central, outrider.Processes(3, "fork")),
    "first of 2 processes": partial(central, outrider.Processes(2, "fork", wait_for=1)),
    "first of threads": partial(central, outrider.Threads(3, wait_for=1)),
    "1 worker": partial(parallel, 1),
    "2 workers": partial(parallel, 2),
    "3 workers": partial(parallel, 3),
}
everywhere = pytest.mark.parametrize("make", EVERYWHERE.values(), ids=EVERYWHERE)


def still(obs):
    return np.zeros((len(obs), 1), np.float32)


def first(obs):
    return np.zeros(len(obs), np.int64)


CHOICES = outrider.Envs(partial(Traced, (1, 2, 3, 5)), 6)
FORCES = outrider.Envs("Pendulum-v1", 6, max_episode_steps=7)


def fading(step):
    return max(0.1, 1 - step / 200)


CASES = {
    "epsilon-greedy": (CHOICES, lambda: outrider.EpsilonGreedy(first, fading)),
    "gaussian": (FORCES, lambda: outrider.ActionNoise(still, outrider.GaussianNoise(fading))),
    "ornstein-uhlenbeck": (
        FORCES,
        lambda: outrider.ActionNoise(still, outrider.OrnsteinUhlenbeckNoise(fading, 2.0, 0.1)),
    ),
}
explorations = pytest.mark.parametrize("case", CASES)


@explorations
@everywhere
def test_the_same_rows(make, case):
    plan, policy = CASES[case]
    with INLINE(plan, policy()) as reference, make(plan, policy()) as collector:
        for _ in range(2):
            expected, found = reference.rollout(25), collector.rollout(25)
            for name in ("obs", "action", "reward", "terminated", "truncated", "episode_id", "step"):
                np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    assert len(np.unique(expected.action)) > 3


@everywhere
def test_a_schedule_begins_at_the_exact_step(make):
    """From step 48 of the run on: the 9th of each of 6 lanes."""
    with make(CHOICES, outrider.EpsilonGreedy(first, lambda step: float(step >= 48))) as collector:
        rollout = collector.rollout(40)
    assert (rollout.action[:8] == 0).all()
    assert (np.bincount(rollout.action[8:].reshape(-1), minlength=5) > 10).all()


@explorations
def test_an_evaluation_in_between_changes_nothing(case):
    plan, policy = CASES[case]
    disturbed = policy()
    with INLINE(plan, policy()) as reference, INLINE(plan, disturbed) as collector:
        for seed in range(3):
            with outrider.make_vec(plan, backend=outrider.Inline()) as envs:
                outrider.evaluate(envs, disturbed, episodes=6, seed=seed)
            np.testing.assert_array_equal(collector.rollout(5).action, reference.rollout(5).action)


def test_evaluation_of_the_deterministic_policy():
    with outrider.make_vec(CHOICES, backend=outrider.Inline()) as envs:
        policy = outrider.EpsilonGreedy(first, 1.0)
        exploring, greedy = (outrider.evaluate(envs, one, 12, seed=0) for one in (policy, policy.deterministic()))
    # The reward is the action and a hundredth of a draw.
    assert greedy.returns.max() < 0.1
    assert exploring.returns.mean() > 1


def test_noise_begins_anew_with_each_episode():
    plan, policy = CASES["ornstein-uhlenbeck"]
    with INLINE(plan, policy()) as collector:
        rollout = collector.rollout(140)
    # One step after the start it is sqrt(dt) N, in the long run more than that.
    ages = [np.abs(rollout.action[rollout.step == age]).std() for age in (0, 6)]
    assert ages[0] < ages[1]
    begins, before = rollout.action[7::7].ravel(), rollout.action[6:-1:7].ravel()
    assert abs(np.corrcoef(begins, before)[0, 1]) < 0.35
    inside = np.corrcoef(rollout.action[5::7].ravel(), rollout.action[6::7].ravel())[0, 1]
    assert inside > 0.5


@everywhere
def test_as_a_warm_up(make):
    with make(CHOICES, first) as collector:
        replay = collector.new_replay(1000, seed=0)
        assert collector.fill(replay, 240, policy=outrider.EpsilonGreedy(first, 0.5)) == 240
        batch = replay.sample(200)
    assert 0.2 < (batch.action != 0).mean() < 0.6
