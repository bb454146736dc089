"""Spaces go to JSON and back exactly."""

import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from minigrid.core.mission import MissionSpace

from outrider.dataset.space_json import space_from_json, space_to_json
from outrider.errors import ConfigError, SpecError
from outrider.ragged_spaces import AnyText

INF = np.float32(np.inf)


def through_json(space):
    return space_from_json(json.loads(json.dumps(space_to_json(space), allow_nan=False)))


def assert_same(found, expected):
    assert type(found) is type(expected)
    assert found == expected
    assert repr(found) == repr(expected)
    if isinstance(expected, spaces.Box):
        for name in ("low", "high", "bounded_below", "bounded_above"):
            new, old = getattr(found, name), getattr(expected, name)
            assert (new.dtype, new.tobytes()) == (old.dtype, old.tobytes()), name
    if isinstance(expected, spaces.Dict):
        assert list(found.spaces) == list(expected.spaces)
    if isinstance(expected, (spaces.Dict, spaces.Tuple)):
        children = found.spaces.values() if isinstance(found, spaces.Dict) else found.spaces
        others = expected.spaces.values() if isinstance(expected, spaces.Dict) else expected.spaces
        for new, old in zip(children, others, strict=True):
            assert_same(new, old)


@pytest.mark.parametrize(
    "space",
    (
        spaces.Box(0, 255, (84, 84, 4), np.uint8),
        spaces.Box(-INF, INF, (3,), np.float32),
        spaces.Box(np.array([-4.8, -INF, -0.1], np.float32), np.array([4.8, INF, 1 / 3], np.float32)),
        spaces.Box(np.array([-1.0, -np.inf]), np.array([np.inf, 1e-300]), dtype=np.float64),
        spaces.Box(-1, 1, (), np.float16),
        spaces.Box(0, 1, (2, 0), np.float32),
        spaces.Box(-(2**62), 2**62 + 1, (2,), np.int64),
        spaces.Box(0, np.inf, (2,), np.int32),
        spaces.Box(0, 1, (2,), np.bool_),
        spaces.Discrete(3, start=-1),
        spaces.Discrete(5, dtype=np.int32),
        spaces.MultiDiscrete([3, 4], start=[-1, 2]),
        spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), dtype=np.int32),
        spaces.MultiBinary(4),
        spaces.MultiBinary((2, 3)),
        spaces.Tuple(()),
        spaces.Dict({}),
        spaces.Dict([("b", spaces.Discrete(2)), ("a", spaces.Tuple((spaces.MultiBinary(2), spaces.Box(-1, 1, (1,)))))]),
        spaces.Dict({1: spaces.Discrete(2), 0: spaces.Dict({"x": spaces.Discrete(3)})}),
        spaces.Text(3),
        spaces.Text(9, min_length=0, charset="zyx \0é"),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Sequence(spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Text(2)), stack=True),
        spaces.Graph(spaces.Discrete(2), None),
        spaces.Graph(spaces.Box(-1, 1, (2,)), spaces.Discrete(3)),
        AnyText(),
    ),
    ids=repr,
)
def test_every_space_is_itself_again(space):
    assert_same(through_json(space), space)


@given(st.data())
def test_boxes_of_any_bounds(data):
    dtype = data.draw(st.sampled_from((np.float32, np.float64)))
    shape = data.draw(npst.array_shapes(max_dims=2, max_side=3))
    # Adding 0 turns -0 into 0: Gymnasium's repr of a Box depends on which of the two its `min` happens to find.
    bounds = [data.draw(npst.arrays(dtype, shape, elements={"allow_nan": False})) + dtype(0) for _ in range(2)]
    low, high = np.minimum(*bounds), np.maximum(*bounds)
    low[np.isposinf(low)], high[np.isneginf(high)] = 0, 0
    low = np.minimum(low, high)
    space = spaces.Box(low, high, dtype=dtype)
    assert_same(through_json(space), space)


@pytest.mark.parametrize(
    "space", (spaces.OneOf([spaces.Discrete(2)]), type("Mine", (spaces.Discrete,), {})(3), gymnasium.Space((3,), float))
)
def test_other_spaces_are_refused_where_they_are(space):
    nested = spaces.Dict({"a": spaces.Tuple((spaces.Discrete(2), space))})
    with pytest.raises(ConfigError, match=rf"obs/a/1: expected Box.*found a space of class {type(space).__name__}"):
        space_to_json(nested, "obs")


def test_parts_of_ragged_spaces_are_named_too():
    part = spaces.OneOf([spaces.Discrete(2)])
    for space, path in (
        (spaces.Sequence(part), r"space/\*"),
        (spaces.Graph(part, None), "space/nodes"),
        (spaces.Graph(spaces.Discrete(2), part), "space/edges"),
    ):
        with pytest.raises(ConfigError, match=f"{path}: expected Box"):
            space_to_json(space)


def test_strings_of_other_packages_become_any_text():
    mission = MissionSpace(lambda: "go")
    assert through_json(spaces.Dict(a=mission)) == spaces.Dict(a=AnyText())
    assert AnyText(seed=3).sample() == AnyText(seed=3).sample()


def test_keys_that_json_cannot_keep_are_refused():
    with pytest.raises(ConfigError, match=r"keys that are strings or integers, found \(1, 2\)"):
        space_to_json(spaces.Dict({(1, 2): spaces.Discrete(2)}))


@pytest.mark.parametrize(
    "description", ({}, {"type": "Text"}, {"type": "Box", "shape": [1]}, {"type": "Dict", "spaces": [[1]]})
)
def test_foreign_descriptions_are_refused(description):
    with pytest.raises(SpecError, match="expected the description of a space"):
        space_from_json(description)
