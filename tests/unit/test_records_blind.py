"""Ends whose last observation nobody knows, through all that can be done with records."""

import dataclasses

import numpy as np
import pytest

import outrider
from outrider.errors import SpecError
from outrider.records import Episodes, Rollout, Steps, StepSpec
from outrider.spec import LeafSpec

SPEC = StepSpec(obs=LeafSpec((2,), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=2)


def make(flag, length=4):
    """Lane 0 ends blindly after two steps, with this flag; lane 1 goes on."""
    plain = Rollout.zeros(SPEC, length)
    ends, step = np.zeros((length, 2), bool), plain.step.copy()
    ends[1, 0] = True
    step[2:, 0] -= 2
    rollout = dataclasses.replace(
        plain,
        **{flag: ends},
        blind=ends.copy(),
        step=step,
        episode_id=np.where(np.arange(length)[:, None] < 2, 0, [1 << 32, 0]),
        final_index=np.array([2]),
        final_obs=np.zeros((1, 2), np.float32),
        obs=np.arange((length + 1) * 4, dtype=np.float32).reshape(length + 1, 2, 2),
    )
    rollout.check()
    return rollout


def test_nobody_bootstraps_where_a_truncated_end_is_blind():
    rollout = make("truncated")
    for record in (rollout, rollout.flatten(), rollout.torch(), rollout[1:3, :1], rollout.segments()[0]):
        with pytest.raises(SpecError, match="do not tell"):
            _ = record.next_obs
    with pytest.raises(SpecError, match=r"row \[1, 0\]"):
        _ = rollout.next_obs
    # The other rows are as good as ever.
    steps = rollout.flatten()
    assert len(steps[~steps.blind].next_obs) == 7
    assert rollout[2:].next_obs.shape == (2, 2, 2)
    assert rollout[:, [1]].next_obs[:, 0, 0].tolist() == [6, 10, 14, 18]


def test_a_terminated_end_does_no_harm_when_it_is_blind():
    rollout = make("terminated")
    assert rollout.next_obs.shape == (4, 2, 2)
    assert rollout.flatten().next_obs.shape == (8, 2)
    assert rollout.segments()[0].next_obs.shape == (2, 2)


def test_the_mark_goes_with_its_row():
    rollout = make("truncated")
    assert rollout.flatten().blind.tolist() == [False, False, True, False, False, False, False, False]
    episodes = rollout.segments()
    episodes.check()
    assert [part.blind.tolist() for part in episodes] == [[False, True], [False, False], [False] * 4]
    assert episodes.flatten().blind.sum() == 1
    assert episodes.padded().blind.sum() == 1
    assert episodes[[1, 0]].blind.tolist() == [False, False, False, True]


def test_records_with_and_without_can_be_joined():
    with_, without = make("truncated"), Rollout.zeros(SPEC, 3)
    steps = Steps.concatenate([without.flatten(), with_.flatten()])
    steps.check()
    assert np.flatnonzero(steps.blind).tolist() == [6 + 2]
    episodes = Episodes.concatenate([with_.segments(), without.segments()])
    episodes.check()
    assert np.flatnonzero(episodes.blind).tolist() == [1]
    assert Steps.concatenate([without.flatten()] * 2).blind is None


def test_only_ends_are_blind():
    rollout = make("truncated")
    wrong = dataclasses.replace(rollout, blind=np.ones_like(rollout.blind))
    with pytest.raises(SpecError, match="blind"):
        wrong.check()
    with pytest.raises(SpecError, match="blind"):
        wrong.flatten().check()


def test_a_dataset_keeps_the_mark(tmp_path):
    with outrider.Dataset.create(tmp_path / "data", SPEC) as dataset:
        dataset.append(make("truncated"))
        found = dataset.episodes()
        assert found[0].blind.tolist() == [False, True]
        assert found[1].blind is None or not found[1].blind.any()
        with pytest.raises(SpecError, match="do not tell"):
            _ = dataset.steps().next_obs
        other = dataset.episodes()[1:].load()
        assert other.blind is None
