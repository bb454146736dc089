"""Outputs of policies become arrays of one structure; whatever differs is refused and named."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from outrider import tree
from outrider.errors import PolicyError
from outrider.policies.action_check import check_action
from outrider.policies.outputs import OutputSchema, as_arrays, to_array
from outrider.spec import LeafSpec


def output(n, **changes):
    return {
        "action": np.arange(n) % 3,
        "log_prob": np.linspace(-1, 0, n, dtype=np.float32),
        "value": np.ones(n),
        **changes,
    }


SPACE = spaces.Discrete(3)


def test_specs_and_order_of_leaves():
    schema = OutputSchema.of(output(4), 4, SPACE)
    scalar = LeafSpec((), np.dtype(np.float64))
    assert schema.specs == {
        "action": LeafSpec((), np.dtype(np.int64)),
        "extras": {"log_prob": LeafSpec((), np.dtype(np.float32)), "value": scalar},
        "state": None,
    }
    assert schema.paths == ["action", "extras/log_prob", "extras/value"]
    assert tree.paths(schema.specs) == schema.paths


@pytest.mark.parametrize("n", (4, 1, 7))
def test_conforming_arrays_pass_as_they_are_in_any_order_of_keys(n):
    schema = OutputSchema.of(output(4), 4, SPACE)
    given = dict(reversed(output(n).items()))
    leaves = schema.leaves(given, n)
    assert [leaf is given[key] for leaf, key in zip(leaves, ["action", "log_prob", "value"], strict=True)] == [True] * 3


def nested(n):
    state = (np.zeros((n, 2, 4)), np.ones((n, 2, 4)))
    action = {"b": (np.zeros(n), np.ones((n, 2))), "a": np.zeros(n, np.int8)}
    return {"state": state, "action": action, "more": {"depth": {"x": np.zeros(n)}}, "none": None}


def test_nested_outputs_with_state():
    schema = OutputSchema.of(nested(3), 3, state=nested(3)["state"])
    assert schema.paths == ["action/b/0", "action/b/1", "action/a", "extras/more/depth/x", "state/0", "state/1"]
    later = nested(5)
    leaves = schema.leaves(later, 5)
    assert leaves[1] is later["action"]["b"][1]
    assert leaves[-1] is later["state"][1]


def test_torch_tensors_lists_and_foreign_byte_order_become_arrays():
    schema = OutputSchema.of(output(3), 3, SPACE)
    given = {
        "action": [2, np.int64(1), 0],
        "log_prob": torch.zeros(3, requires_grad=True) + 1,
        "value": np.ones(3, ">f8"),
    }
    action, log_prob, value = schema.leaves(given, 3)
    assert [type(leaf) for leaf in (action, log_prob, value)] == [np.ndarray] * 3
    assert [leaf.dtype for leaf in (action, log_prob, value)] == [np.int64, np.float32, np.dtype("=f8")]
    assert action.tolist() == [2, 1, 0]
    assert value.tolist() == [1.0, 1.0, 1.0]


def test_foreign_byte_order_at_the_first_call():
    schema = OutputSchema.of({"action": np.ones(2, ">i4")}, 2, SPACE)
    assert schema.specs["action"].dtype.isnative
    assert schema.leaves({"action": np.array([1, 2], ">i4")}, 2)[0].tolist() == [1, 2]


def test_integers_in_a_list_are_floats_where_floats_came_before_but_not_the_other_way_round():
    schema = OutputSchema.of(output(2, value=[0.5, 1]), 2, SPACE)
    assert schema.leaves(output(2, value=[1, 2]), 2)[2].dtype == np.float64
    schema = OutputSchema.of(output(2, value=[0, 1]), 2, SPACE)
    with pytest.raises(PolicyError, match=r"'extras/value'.*int64.*float64"):
        schema.leaves(output(2, value=[0.5, 1.5]), 2)


def test_rows_of_arrays_in_a_list():
    arrays = as_arrays([np.zeros(3), np.ones(3)], 2, "action")
    assert arrays.shape == (2, 3)


def test_conversion_shares_memory_where_it_can():
    tensor = torch.zeros(3)
    assert np.shares_memory(to_array(tensor, "x"), tensor.numpy())


DRIFTS = [
    ({"value": np.ones(4, np.float32)}, r"'extras/value': expected shape \(4,\), dtype float64.*dtype float32"),
    ({"value": np.ones((4, 1))}, r"'extras/value': expected shape \(4,\).*found shape \(4, 1\)"),
    ({"action": np.zeros(3, np.int64)}, r"'action': expected 4 rows.*found shape \(3,\)"),
    ({"action": np.int64(1)}, r"'action': expected 4 rows.*found shape \(\)"),
    ({"entropy": np.ones(4)}, r"expected a dict with keys \['action', 'log_prob', 'value'\], found .*'entropy'"),
    ({"state": np.ones(4)}, r"found a dict with keys .*'state'"),
    ({"value": {"mean": np.ones(4)}}, r"'extras/value': expected one array, found a dict with keys \['mean'\]"),
    ({"value": None}, r"'extras/value': expected one array, found nothing"),
    ({"value": ["a"] * 4}, r"'extras/value': expected an array of numbers"),
    ({"value": [[1.0], [1.0, 2.0], [], []]}, r"'extras/value': expected something that converts"),
    ({"value": torch.ones(4, dtype=torch.bfloat16)}, r"'extras/value'.*BFloat16"),
]


@pytest.mark.parametrize(("change", "message"), DRIFTS)
def test_later_outputs_that_differ_are_refused(change, message):
    schema = OutputSchema.of(output(4), 4, SPACE)
    with pytest.raises(PolicyError, match=message):
        schema.leaves(output(4, **change), 4)
    assert len(schema.leaves(output(4), 4)) == 3


def test_a_missing_key_is_named():
    schema = OutputSchema.of(output(4), 4, SPACE)
    short = output(4)
    del short["value"]
    with pytest.raises(PolicyError, match=r"found a dict with keys \['action', 'log_prob'\]"):
        schema.leaves(short, 4)
    renamed = {**short, "values": np.ones(4)}
    with pytest.raises(PolicyError, match="'values'"):
        schema.leaves(renamed, 4)


def test_nested_structure_that_differs_is_named_by_its_path():
    schema = OutputSchema.of(nested(2), 2, state=nested(2)["state"])
    cases = {
        "action/b": lambda o: o["action"].update(b=(np.zeros(2),)),
        "more/depth": lambda o: o["more"].update(depth={"y": np.zeros(2)}),
        "none": lambda o: o.update(none=np.zeros(2)),
        "state": lambda o: o.update(state=[np.zeros(2)]),
    }
    for path, spoil in cases.items():
        wrong = nested(2)
        spoil(wrong)
        with pytest.raises(PolicyError, match=f"'{path}'"):
            schema.leaves(wrong, 2)


@pytest.mark.parametrize(
    ("first", "state", "message"),
    (
        ({"actions": np.zeros(2)}, None, r"the key \"action\", found a dict with keys \['actions'\]"),
        (np.zeros(2), None, r"found an object of type ndarray"),
        ({"action": np.zeros(2), "state": np.zeros(2)}, None, r"no key \"state\""),
        ({"action": np.zeros(2)}, np.zeros((2, 3)), r"the key \"state\""),
        (
            {"action": np.zeros(2), "state": np.zeros((2, 3), np.float32)},
            np.zeros((2, 3)),
            r"'state': expected shape \(2, 3\), dtype float64, as initial_state",
        ),
        ({"action": np.zeros(2), "state": np.zeros((3, 3))}, np.zeros((2, 3)), r"'state': expected 2 rows"),
        ({"action": np.zeros(3)}, None, r"'action': expected 2 rows"),
        *(
            ({"action": np.zeros(2), name: np.zeros(2)}, None, rf"names of their own, found '{name}'.*'policy_{name}'")
            for name in ("reward", "terminated", "obs", "next_obs", "env_id", "is_first", "final_obs")
        ),
        ({"action": np.zeros(2), "v": np.zeros((1, 2))}, None, r"'extras/v': expected 2 rows"),
    ),
)
def test_first_outputs_that_cannot_be(first, state, message):
    with pytest.raises(PolicyError, match=message):
        OutputSchema.of(first, 2, state=state)


N = 3
FITTING = [
    (spaces.Discrete(3, start=-1), np.zeros(N, np.int64)),
    (spaces.Discrete(3), np.zeros(N, np.int32)),
    (spaces.Discrete(2), np.zeros(N, np.bool_)),
    (spaces.Box(-1, 1, (2,)), np.zeros((N, 2), np.float32)),
    (spaces.Box(-1, 1, (2,)), np.zeros((N, 2), np.float64)),
    (spaces.Box(-1, 1, (10, 10)), np.zeros((N, 10, 10), np.float32)),
    (spaces.Box(-1, 1, ()), np.zeros(N, np.float32)),
    (spaces.Box(-1, 1, (2,)), np.zeros((N, 2), np.int8)),
    (spaces.Box(0, 9, (2,), np.int64), np.zeros((N, 2), np.uint8)),
    (spaces.MultiDiscrete([[2, 3], [4, 5]]), np.zeros((N, 2, 2), np.int64)),
    (spaces.MultiBinary(4), np.zeros((N, 4), np.int8)),
    (spaces.MultiBinary((2, 2)), np.zeros((N, 2, 2), np.bool_)),
    (
        spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1)))),
        {"b": (np.zeros(N, int), np.zeros((N, 1))), "a": np.zeros(N, int)},
    ),
]


@pytest.mark.parametrize(("space", "action"), FITTING)
def test_actions_that_fit_their_space(space, action):
    check_action(space, action, N)
    OutputSchema.of({"action": action}, N, space)


MISFITS = [
    (spaces.Discrete(3), np.zeros((N, 1), np.int64), r"action: expected shape \(3,\) for Discrete\(3\).*\(3, 1\)"),
    (spaces.Discrete(3), np.zeros(N), "expected integers .* found dtype float64"),
    (spaces.Box(-1, 1, (2,)), np.zeros(N), r"expected shape \(3, 2\)"),
    (spaces.Box(-1, 1, (2,)), np.zeros((N, 2), np.int64), "expected floats .* found dtype int64"),
    (spaces.Box(-1, 1, (2,)), np.zeros((N, 2), np.complex64), "found dtype complex64"),
    (spaces.Box(0, 9, (2,), np.int64), np.zeros((N, 2)), "expected integers"),
    (spaces.MultiDiscrete([2, 3]), np.zeros((N, 3), np.int64), r"expected shape \(3, 2\)"),
    (spaces.MultiBinary(4), np.zeros((N, 4), np.float32), "expected integers"),
    (spaces.Dict(a=spaces.Discrete(2)), {"b": np.zeros(N, int)}, r"keys \['a'\], found a dict with keys \['b'\]"),
    (spaces.Dict(a=spaces.Discrete(2)), {"a": np.zeros(N)}, "action/a: expected integers"),
    (spaces.Dict(a=spaces.Discrete(2)), np.zeros(N, int), r"keys \['a'\], found one array"),
    (spaces.Tuple([spaces.Discrete(2)] * 2), (np.zeros(N, int),), "a tuple of 2 action batches, found a tuple of 1"),
    (spaces.Tuple([spaces.Discrete(2)] * 2), np.zeros((2, N), int), "a tuple of 2 action batches, found one array"),
    (spaces.Discrete(2), {"left": np.zeros(N, int)}, r'found a dict with keys .*with extras: \{"action": actions'),
    (spaces.Discrete(2), [0, 1, 1], "found an object of type list"),
    (spaces.Text(3), np.zeros(N, int), "a Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple space, found Text"),
]


@pytest.mark.parametrize(("space", "action", "message"), MISFITS)
def test_actions_that_do_not_fit(space, action, message):
    with pytest.raises(PolicyError, match=message):
        check_action(space, action, N)


def test_a_dict_without_the_key_action_is_explained():
    with pytest.raises(PolicyError, match=r"action: expected one array for Discrete\(2\), found a dict .*'actions'"):
        OutputSchema.of({"action": {"actions": np.zeros(2, int)}}, 2, spaces.Discrete(2))


def test_the_unit_convention_takes_floats_for_integer_boxes():
    space = spaces.Box(0, 9, (2,), np.uint8)
    check_action(space, np.zeros((N, 2), np.float32), N, "unit")
    with pytest.raises(PolicyError, match="expected integers"):
        check_action(space, np.zeros((N, 2), np.float32), N, "env")


def test_the_policy_s_own_values_are_left_alone():
    space = spaces.Box(-1, 1, (1,))
    action = np.array([[1.7], [0.2]], np.float32)
    given = {"action": action, "log_prob": np.array([-0.3, -0.1])}
    leaves = OutputSchema.of(given, 2, space).leaves(given, 2)
    assert leaves[0] is action
    assert leaves[0][0, 0] == np.float32(1.7)
