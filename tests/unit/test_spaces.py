"""From spaces to rows and back: what is written, what is refused, what is left out."""

import numpy as np
import pytest
from gymnasium import spaces

from outrider import tree
from outrider.errors import ConfigError, SpecError
from outrider.spaces import action_reader, leaf_specs, observation_specs, observation_writer, stored_part
from outrider.spec import LeafSpec, RaggedSpec
from outrider.testing.envs import CASES, same

FIXED = [name for name in CASES if name not in {"text", "graph", "stack", "ragged"}]


@pytest.mark.parametrize("name", FIXED)
def test_what_is_written_is_read_back_as_a_member_of_the_space(name):
    for space in CASES[name]:
        arrays = tree.zeros(leaf_specs(space), 5)
        write, read = observation_writer(space, arrays), action_reader(space, arrays)
        space.seed(0)
        for _ in range(20):
            values = [space.sample() for _ in range(5)]
            for row, value in enumerate(values):
                write(value, row)
            for row, value in enumerate(values):
                found = read(row)
                assert space.contains(found)
                assert same(tree.map(np.asarray, found), tree.map(np.asarray, value))


@pytest.mark.parametrize("value", (3, np.int64(3), np.int8(3), np.array(3), np.array(3, np.uint64)))
def test_integers_of_any_kind_are_discrete_observations(value):
    array = np.zeros(2, np.int64)
    observation_writer(spaces.Discrete(5), array)(value, 1)
    assert array.tolist() == [0, 3]


@pytest.mark.parametrize("value", (2**63, 1.0, np.float32(1), True, "1", None, np.array([3]), [3], np.bool_(1)))
def test_what_is_no_integer_is_refused_as_a_discrete_observation(value):
    with pytest.raises(SpecError, match="observation: expected shape"):
        observation_writer(spaces.Discrete(5), np.zeros(2, np.int64))(value, 0)


@pytest.mark.parametrize(
    "value",
    (
        np.zeros(3, np.float64),
        np.zeros(2, np.float32),
        np.zeros((1, 3), np.float32),
        np.float32(0),
        [0.0, 0.0, 0.0],
        None,
    ),
)
def test_arrays_are_neither_cast_nor_broadcast(value):
    array = np.ones((2, 3), np.float32)
    with pytest.raises(SpecError, match=r"shape \(3,\), dtype float32"):
        observation_writer(spaces.Box(-1, 1, (3,)), array)(value, 0)
    assert array.all()


@pytest.mark.parametrize(
    ("value", "path"),
    (
        ({"a": ({"b": np.zeros(1, np.float32)}, 1.5)}, "'a/1'"),
        ({"a": ({"b": np.zeros(2, np.float32)}, 1)}, "'a/0/b'"),
        ({"a": ({"c": np.zeros(1, np.float32)}, 1)}, "'a/0'"),
        ({"a": ({"b": np.zeros(1, np.float32), "c": 1}, 1)}, "'a/0'"),
        ({"a": ({"b": np.zeros(1, np.float32)},)}, "'a'"),
        ({"a": {"b": 1}}, "'a'"),
        ({}, "observation: expected a dict"),
        ((1, 2), "observation: expected a dict"),
    ),
)
def test_a_mismatch_is_named_by_its_path(value, path):
    space = spaces.Dict(a=spaces.Tuple((spaces.Dict(b=spaces.Box(-1, 1, (1,))), spaces.Discrete(3))))
    with pytest.raises(SpecError, match=path):
        observation_writer(space, tree.zeros(leaf_specs(space), 2))(value, 0)


def test_leaves_that_nobody_can_store():
    number, word, either = spaces.Discrete(2), spaces.Text(5), spaces.OneOf([spaces.Discrete(2), spaces.Text(5)])
    assert stored_part(number) == (number, [])
    assert stored_part(word) == (word, [])
    assert stored_part(either) == (None, [""])
    assert stored_part(spaces.Dict(a=number, b=spaces.Dict(c=either, d=word))) == (
        spaces.Dict(a=number, b=spaces.Dict(d=word)),
        ["b/c"],
    )
    # Positions are names: a tuple is kept or left out as a whole.
    pair = spaces.Tuple((number, either))
    assert stored_part(spaces.Dict(a=number, b=pair)) == (spaces.Dict(a=number), ["b/1", "b/0"])
    assert stored_part(spaces.Dict(a=either, b=spaces.Sequence(either), c=spaces.Graph(either, None))) == (
        None,
        ["a", "b", "c"],
    )


def test_ragged_leaves_are_for_observations_only():
    space = spaces.Dict(a=spaces.Text(5), b=spaces.Tuple((spaces.Sequence(spaces.Discrete(2)), spaces.Discrete(2))))
    assert observation_specs(space) == {
        "a": RaggedSpec("text"),
        "b": (RaggedSpec("sequence"), LeafSpec((), np.dtype(np.int64))),
    }
    with pytest.raises(ConfigError, match="action space/a"):
        leaf_specs(space, "action space")
    with pytest.raises(ConfigError, match="observation space/a"):
        observation_specs(spaces.Dict(a=spaces.OneOf([spaces.Discrete(2)])))


def test_specs_of_leaves():
    assert leaf_specs(spaces.MultiBinary((2, 3))) == LeafSpec((2, 3), np.dtype(np.int8))
    assert leaf_specs(spaces.Discrete(3, dtype=np.int32)) == LeafSpec((), np.dtype(np.int32))
    assert leaf_specs(spaces.Tuple((spaces.Box(0, 1, ()),))) == (LeafSpec((), np.dtype(np.float32)),)
