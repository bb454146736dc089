"""Blocks add up to exactly what was asked for, and what is stored does not depend on their sizes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import outrider
from helpers.cli import assert_same_steps
from helpers.envs import RandomLengthEnv
from outrider.cli import blocks as module
from outrider.cli.blocks import blocks, take_episodes
from outrider.dataset import Dataset
from outrider.records import StepSpec
from outrider.spec import LeafSpec

SPEC = StepSpec(obs=LeafSpec((), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=1)


def flat(count):
    return SPEC.zeros(count).flatten()


@given(count=st.integers(1, 100_000), lanes=st.integers(1, 20_000))
def test_sizes_of_blocks_of_steps(count, lanes):
    asked = []

    def take(units):
        asked.append(units)
        return flat(units)

    assert [units for _, units in blocks(take, count, lanes)] == asked
    assert sum(asked) == count
    assert all(units % lanes == 0 and units <= max(lanes, module.MOST_ROWS) for units in asked[:-1])


def test_slow_blocks_shrink_and_fast_ones_grow(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module, "perf_counter", lambda: clock[0])
    asked = []

    def take(units):
        asked.append(units)
        clock[0] += units * seconds_a_step
        return flat(units)

    seconds_a_step = 0.0
    running = blocks(take, 10**9, 4)
    for _ in range(12):
        next(running)
    assert asked[:4] == [4, 8, 16, 32]
    assert asked[-1] == module.MOST_ROWS
    seconds_a_step = 0.01
    for _ in range(20):
        next(running)
    assert all(units * seconds_a_step <= 2 * module.GOAL_S for units in asked[-5:])


def collected(path, monkeypatch, unit, most_rows):
    """Random lengths, and actions that depend on the lane and its steps."""
    monkeypatch.setattr(module, "MOST_ROWS", most_rows)
    with outrider.make_vec(RandomLengthEnv, 3) as envs:
        policy = outrider.RandomPolicy(envs.single_action_space)
        with (
            outrider.Collector(envs, policy, seed=4) as collector,
            Dataset.create(path, collector.spec) as dataset,
        ):
            take = collector.steps if unit == "steps" else lambda count: take_episodes(collector, count)
            for block, _ in blocks(take, 100, 3):
                dataset.append(block)
    with Dataset.open(path) as dataset:
        return dataset.steps()


@pytest.mark.parametrize("unit", ("steps", "episodes"))
def test_what_is_stored_does_not_depend_on_the_size_of_blocks(tmp_path, monkeypatch, unit):
    small = collected(tmp_path / "small", monkeypatch, unit, 1)
    large = collected(tmp_path / "large", monkeypatch, unit, 10_000)
    assert_same_steps(small, large)
    assert len(small) == 100 or unit == "episodes"
