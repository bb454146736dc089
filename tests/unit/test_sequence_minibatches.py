"""Sequences of a rollout in batches of one shape: each is a part of one lane, with its states, ends and last rows."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.plain_rows import assert_equal, plans, rollout_of
from outrider.errors import ConfigError
from outrider.records import StepSpec
from outrider.records.describe import columns_of
from outrider.spec import LeafSpec


@pytest.fixture
def rollout():
    spec = StepSpec(obs=LeafSpec((3,), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=3)
    rollout = spec.zeros(8)
    return rollout.with_columns(number=np.arange(24).reshape(8, 3))


def starts_of(batch):
    """(first step, lane) of each sequence: `rollout_of` has the time of a row as its version, and lanes from 10 on."""
    return list(zip(np.asarray(batch.version)[0].tolist(), (np.asarray(batch.env_id) - 10).tolist(), strict=True))


@given(plan=plans(), data=st.data(), tensors=st.booleans())
def test_each_sequence_is_a_part_of_a_lane_and_comes_once_in_each_epoch(plan, data, tensors):
    length = data.draw(st.sampled_from([n for n in range(1, plan.length + 1) if plan.length % n == 0]))
    starts = [(t, lane) for t in range(0, plan.length, length) for lane in range(plan.lanes)]
    size, epochs = data.draw(st.integers(1, len(starts))), data.draw(st.integers(1, 3))
    rollout = rollout_of(plan)
    source = rollout.torch() if tensors else rollout
    batches = list(source.sequence_minibatches(size, length=length, epochs=epochs, seed=5))
    assert len(batches) == len(starts) * epochs // size
    drawn = []
    for batch in batches:
        batch.check()
        assert (batch.length, batch.num_envs) == (length, size)
        for column, (t, lane) in enumerate(starts_of(batch)):
            part = source[t : t + length, [lane]]
            assert_equal(columns_of(batch[:, [column]]), columns_of(part))
            assert_equal(batch[:, [column]].next_obs, part.next_obs)
        drawn += starts_of(batch)
    for epoch in range(len(drawn) // len(starts)):
        assert sorted(drawn[epoch * len(starts) : (epoch + 1) * len(starts)]) == starts
    rest = drawn[len(drawn) // len(starts) * len(starts) :]
    assert len(set(rest)) == len(rest)


@given(plans(dummies=True))
def test_flattened_batches_have_the_valid_rows_only(plan):
    rollout = rollout_of(plan)
    batches = [batch.flatten() for batch in rollout.sequence_minibatches(1, seed=0)]
    numbers = sorted(number for batch in batches for number in batch.obs_info["seen"].tolist())
    assert numbers == sorted(row.obs for row in plan.rows if row.valid)
    assert all(batch.valid.all() for batch in batches)


def test_added_columns_come_along_and_batches_are_copies(rollout):
    (batch,) = rollout.torch().sequence_minibatches(3, seed=0)
    assert isinstance(batch.extras["number"], torch.Tensor)
    assert sorted(batch.extras["number"][0].tolist()) == [0, 1, 2]
    batch.extras["number"][:] = -1
    batch.obs[:] = 7
    assert rollout.extras["number"].min() == 0
    assert rollout.obs.max() == 0


def test_sequences_are_the_same_from_the_same_seed_only(rollout):
    def drawn(seed, epochs=1):
        batches = rollout.sequence_minibatches(2, length=2, epochs=epochs, seed=seed)
        return [batch.extras["number"][0].tolist() for batch in batches]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert drawn(1, epochs=2)[:6] == drawn(1)
    assert drawn(1, epochs=2)[6:] != drawn(1)


def test_the_global_generators_are_left_alone(rollout):
    before = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002 - it is untouched
    list(rollout.torch().sequence_minibatches(2, epochs=2))
    assert (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before  # noqa: NPY002


@pytest.mark.parametrize(
    ("arguments", "words"),
    (
        ({"size": 4}, r"minibatches\(size\): expected a size from 1 to the 3 sequences of 8 steps there are, found 4"),
        ({"size": 7, "length": 4}, "the 6 sequences of 4 steps"),
        ({"size": 0}, "found 0"),
        ({"size": 1.5}, "found 1.5"),
        ({"size": True}, "found True"),
        ({"size": 1, "length": 3}, r"sequence_minibatches\(length\): expected a length that divides the 8 steps"),
        ({"size": 1, "length": 0}, "found 0"),
        ({"size": 1, "length": 16}, "found 16"),
        ({"size": 1, "length": 2.0}, "found 2.0"),
        ({"size": 1, "epochs": 0}, "1 epoch or more, found 0"),
        ({"size": 1, "epochs": "2"}, "1 epoch or more, found '2'"),
        ({"size": 1, "seed": -1}, "seed: expected an integer of 0 or more"),
    ),
    ids=str,
)
def test_what_cannot_be_is_refused_at_once(rollout, arguments, words):
    with pytest.raises(ConfigError, match=words):
        rollout.sequence_minibatches(**arguments)
