"""Specs that are written by hand, and what is said where rows are not of them."""

import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces

import outrider
from outrider import ConfigError, LeafSpec, SpecError, StepSpec
from outrider.spec import RaggedSpec, check_batch


def test_a_leaf_takes_whatever_names_a_dtype():
    expected = LeafSpec((3,), np.dtype("f4"))
    for shape, dtype in (((3,), "float32"), ([3], np.float32), ((np.int64(3),), "f4")):
        leaf = LeafSpec(shape, dtype)
        assert leaf == expected
        assert hash(leaf) == hash(expected)
        assert type(leaf.shape[0]) is int
        assert leaf.zeros(2).dtype == leaf.dtype == np.float32
    assert pickle.loads(pickle.dumps(expected)) == expected


@pytest.mark.parametrize("shape", (3, "3", (-1,), (2.0,), None))
def test_a_shape_that_is_none_is_refused(shape):
    with pytest.raises(SpecError, match="a tuple of sizes"):
        LeafSpec(shape, "f4")


@pytest.mark.parametrize("dtype", ("float31", None), ids=repr)
def test_a_dtype_that_is_none_is_refused(dtype):
    with pytest.raises(SpecError, match=r"a dtype.*'float32'"):
        LeafSpec((), dtype)
    with pytest.raises(SpecError, match="a dtype"):
        LeafSpec((), torch.float32)


def test_a_step_spec_of_spaces_is_that_of_the_collector():
    with (
        outrider.make_vec("Pendulum-v1", 3) as envs,
        outrider.Collector(envs, outrider.RandomPolicy(envs.single_action_space)) as collector,
    ):
        spec = StepSpec.from_spaces(envs.single_observation_space, envs.single_action_space, 3)
        for column in ("obs", "action", "num_envs", "reward", "observation_space", "action_space"):
            assert getattr(spec, column) == getattr(collector.spec, column)


def test_a_step_spec_of_nested_spaces():
    observation = spaces.Dict(image=spaces.Box(0, 255, (2, 2), np.uint8), mission=spaces.Text(5))
    spec = StepSpec.from_spaces(observation, spaces.Tuple([spaces.Discrete(2, start=-1), spaces.MultiBinary(3)]))
    assert spec.obs == {"image": LeafSpec((2, 2), "u1"), "mission": RaggedSpec("text")}
    assert spec.action == (LeafSpec((), "i8"), LeafSpec((3,), "i1"))
    assert spec.num_envs == 1


def test_what_is_no_space_is_refused():
    with pytest.raises(SpecError, match=r"from_spaces\(observation_space\): expected a space"):
        StepSpec.from_spaces(LeafSpec((3,), "f4"), spaces.Discrete(2))
    with pytest.raises(SpecError, match=r"from_spaces\(action_space\).*found 2"):
        StepSpec.from_spaces(spaces.Discrete(2), 2)


def test_spaces_that_cannot_be_stored_are_refused_by_name():
    either = spaces.OneOf([spaces.Discrete(3), spaces.Text(5)])
    with pytest.raises(ConfigError, match="observation space/either"):
        StepSpec.from_spaces(spaces.Dict(either=either), spaces.Discrete(2))
    with pytest.raises(ConfigError, match="action space"):
        StepSpec.from_spaces(spaces.Discrete(2), spaces.Text(5))


@pytest.mark.parametrize(
    ("column", "value"),
    (
        ("obs", {"a": spaces.Discrete(2)}),
        ("action", np.zeros(3)),
        ("extras", {"log_prob": "f4"}),
        ("num_envs", 2.0),
        ("num_envs", -1),
        ("num_envs", True),
    ),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_step_spec_of_something_else_is_refused_by_name(column, value):
    arguments = {"obs": LeafSpec((), "f4"), "action": LeafSpec((), "i8"), "num_envs": 2} | {column: value}
    with pytest.raises(SpecError, match=rf"StepSpec\({column}"):
        StepSpec(**arguments)


def test_numbers_of_numpy_are_numbers_of_lanes():
    spec = StepSpec(obs=LeafSpec((), "f4"), action=LeafSpec((), "i8"), num_envs=np.int32(2))
    assert type(spec.num_envs) is int


@pytest.mark.parametrize(
    ("batch", "message"),
    (
        (np.zeros((2, 3)), r"dtype float32, found shape \(2, 3\), dtype float64.*astype\(np.float32\)"),
        (np.zeros(3, "f4"), r"found shape \(3,\).*x\[None\]"),
        (np.zeros((2, 4), "f4"), r"found shape \(2, 4\).*StepSpec.of"),
        ([[0.0] * 3] * 2, r"found a list.*np.asarray"),
        (torch.zeros(2, 3), r"found a Tensor.*x.numpy\(\)"),
        (1.0, "found a float"),
    ),
    ids=("dtype", "axis", "shape", "list", "tensor", "number"),
)
def test_an_error_says_what_to_do_about_an_array(batch, message):
    with pytest.raises(SpecError, match=r"here at 'a': expected shape \(2, 3\).*" + message):
        check_batch({"a": LeafSpec((3,), "f4")}, {"a": batch}, (2,), "here")


def test_observations_of_another_dtype_are_refused_with_a_way_out():
    space = spaces.Box(-1, 1, (3,), np.float32)
    replay = outrider.ReplayBuffer(10, StepSpec.from_spaces(space, spaces.Discrete(2)))
    row = {"action": np.zeros(1, int), "reward": [0.0], "terminated": [False], "truncated": [False]}
    good = np.zeros((1, 3), np.float32)
    for name in ("obs", "next_obs"):
        with pytest.raises(SpecError, match=rf"'{name}'.*float64.*astype\(np.float32\)"):
            replay.add(**{"obs": good, "next_obs": good, name: np.zeros((1, 3))}, **row)
    with pytest.raises(SpecError, match=r"'obs'.*x\[None\]"):
        replay.add(obs=good[0], next_obs=good[0], **row)
    assert len(replay) == 0


def test_a_buffer_of_no_lanes_is_refused():
    spec = StepSpec(obs=LeafSpec((), "f4"), action=LeafSpec((), "i8"), num_envs=0)
    with pytest.raises(ConfigError, match="one lane or more"):
        outrider.ReplayBuffer(10, spec)


def test_only_public_names_are_listed():
    names = dir(outrider)
    assert {"LeafSpec", "ReplayBuffer", "torch", "__version__"} <= set(names)
    assert [name for name in names if name.startswith("_") and not name.startswith("__")] == []
    assert not {"Any", "importlib", "annotations", "TYPE_CHECKING"} & set(names)
    for name in names:
        assert getattr(outrider, name) is not None
