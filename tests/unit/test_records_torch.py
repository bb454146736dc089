"""Records of tensors: shared memory where torch can, and every operation as on NumPy."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.plain_rows import assert_equal, plans, rollout_of
from outrider import tree
from outrider.errors import SpecError
from outrider.records import Episodes, Steps, StepSpec
from outrider.records.describe import columns_of
from outrider.spec import LeafSpec
from outrider.torch.convert import tensor

NAMES = ("obs", "next_obs", "action", "cut", "episode_id", "step", "extras", "state", "info", "obs_info")


@pytest.fixture
def rollout():
    extras = {"value": LeafSpec((), np.dtype("f8"))}
    spec = StepSpec(obs=LeafSpec((3,), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=2, extras=extras)
    return spec.zeros(4)


def test_tensors_share_memory_and_the_reward_is_float32(rollout):
    found = rollout.torch()
    assert all(isinstance(leaf, torch.Tensor) for leaf in tree.leaves(columns_of(found)))
    assert found.reward.dtype == torch.float32
    assert found.extras["value"].dtype == torch.float64
    assert found.terminated.dtype == torch.bool
    found.obs[0, 0, 0] = 5
    found.extras["value"][1, 1] = 6
    assert rollout.obs[0, 0, 0] == 5
    assert rollout.extras["value"][1, 1] == 6
    found.check()


def test_what_torch_cannot_share_is_copied(rollout):
    read_only = np.broadcast_to(np.float32(1), rollout.obs.shape)
    swapped = np.arange(8, dtype=">i8").reshape(4, 2)
    reversed_ = np.arange(8).reshape(4, 2)[::-1]
    found = dataclasses.replace(rollout, obs=read_only, extras={"s": swapped, "r": reversed_}).torch()
    assert (found.obs == 1).all()
    assert found.extras["s"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert found.extras["r"].tolist() == [[6, 7], [4, 5], [2, 3], [0, 1]]


def test_a_dtype_that_torch_lacks_is_named(rollout):
    words = rollout.with_columns(word={"a": np.full((4, 2), "x")})
    with pytest.raises(SpecError, match=r"column 'extras/word/a'.*dtype <U1"):
        words.torch()


def test_a_tensor_stays_the_tensor_it_is(rollout):
    found = rollout.torch()
    assert found.torch().obs is found.obs
    assert tensor([1, 2]).tolist() == [1, 2]


def test_another_device_gets_all_columns(rollout):
    found = rollout.torch("meta")
    assert {leaf.device.type for leaf in tree.leaves(columns_of(found))} == {"meta"}
    steps = rollout.flatten()[:2].torch("meta")
    assert steps.obs_rows.shape == (4, 3)  # two steps of two lanes, and only what they use


def test_columns_become_the_kind_of_the_record(rollout):
    numpy_record = rollout.with_columns(a=torch.ones(4, 2, requires_grad=True))
    torch_record = rollout.torch().with_columns(a=np.ones((4, 2), np.float32))
    assert isinstance(numpy_record.extras["a"], np.ndarray)
    assert isinstance(torch_record.extras["a"], torch.Tensor)


def assert_same(tensors, arrays):
    assert type(tensors) is type(arrays)
    assert len(tensors) == len(arrays)
    for name in NAMES:
        if hasattr(arrays, name):
            assert_equal(getattr(tensors, name), getattr(arrays, name))
    np.testing.assert_allclose(tensors.reward.numpy(), arrays.reward, rtol=1e-6)


@settings(max_examples=40)
@given(plans(), st.data())
def test_every_operation_is_the_same_on_tensors(plan, data):
    rollout = rollout_of(plan)
    found = rollout.torch()
    found.check()
    for key in ((slice(0, 2), slice(None)), (slice(1, None), np.arange(plan.lanes)[::-1])):
        assert_same(found[key], rollout[key])
    steps, tensors = rollout.flatten(), found.flatten()
    rows = np.array(data.draw(st.lists(st.integers(-len(steps), len(steps) - 1), max_size=5)), np.int64)
    assert_same(tensors, steps)
    for key in (slice(0, 3), slice(None, None, -1), rows):
        assert_same(tensors[key], steps[key])
        assert_same(tensors[key].compact(), steps[key])
    assert_same(tensors[torch.as_tensor(rows)], steps[rows])
    assert_same(Steps.concatenate([tensors[rows], tensors]), Steps.concatenate([steps[rows], steps]))
    size = data.draw(st.integers(1, len(rollout)))
    batches = (record.minibatches(size, epochs=2, seed=1) for record in (found, rollout))
    for batch, expected in zip(*batches, strict=True):
        assert_same(batch, expected)


@settings(max_examples=40)
@given(plans())
def test_episodes_are_the_same_on_tensors(plan):
    rollout = rollout_of(plan)
    episodes, tensors = rollout.segments(), rollout.torch().segments()
    tensors.check()
    for found, expected in zip(tensors, episodes, strict=True):
        assert_same(found, expected)
        assert (found.episode_id, found.env_id) == (expected.episode_id, expected.env_id)
        assert found.return_ == pytest.approx(expected.return_)
    assert_same(tensors.flatten(), episodes.flatten())
    assert_same(tensors[::-1].flatten(), episodes[::-1].flatten())
    assert_same(tensors.padded(), episodes.padded())
    assert_same(episodes.padded().torch(), episodes.padded())
    assert_same(episodes[0].torch().segments()[0], episodes[0])
    assert_same(Episodes.concatenate([tensors, tensors]), Episodes.concatenate([episodes, episodes]))
    np.testing.assert_allclose(tensors.returns, episodes.returns, rtol=1e-6)
    assert list(tensors.is_complete) == list(episodes.is_complete)
