"""The tree module, and the specs of leaves."""

from typing import NamedTuple

import numpy as np
import pytest

from outrider import tree
from outrider.errors import SpecError
from outrider.spec import LeafSpec, check_batch, row_nbytes, specs_of


class Point(NamedTuple):
    x: object
    y: object


NESTED = {"a": 1, "b": (2, {"c": 3}), "nothing": None, "empty": {}}


def test_leaves_and_paths_are_in_the_order_of_the_tree():
    assert tree.items(NESTED, "obs") == [("obs/a", 1), ("obs/b/0", 2), ("obs/b/1/c", 3)]
    assert tree.leaves(NESTED) == [1, 2, 3]
    assert tree.paths(NESTED) == ["a", "b/0", "b/1/c"]


@pytest.mark.parametrize("empty", (None, {}, (), {"a": None, "b": ()}))
def test_nothing_has_no_leaves(empty):
    assert tree.leaves(empty) == []
    assert tree.map(lambda leaf: leaf + 1, empty) == empty


def test_a_lone_leaf_is_a_tree():
    assert tree.map(lambda leaf: leaf + 1, 4) == 5
    assert tree.items(4, "reward") == [("reward", 4)]


def test_a_list_is_a_leaf():
    assert tree.leaves({"a": [1, 2]}) == [[1, 2]]


def test_map_keeps_the_structure_and_matches_by_key():
    swapped = {"empty": {}, "nothing": None, "b": (20, {"c": 30}), "a": 10}
    expected = {"a": 11, "b": (22, {"c": 33}), "nothing": None, "empty": {}}
    found = tree.map(lambda a, b: a + b, NESTED, swapped)
    assert found == expected
    assert list(found) == list(NESTED)


def test_named_tuples_stay_named_tuples():
    assert tree.map(lambda leaf: -leaf, Point(1, {"z": 2})) == Point(-1, {"z": -2})
    assert isinstance(tree.unflatten(Point(0, 0), [1, 2]), Point)


@pytest.mark.parametrize(
    ("other", "words"),
    (
        ({"a": 1, "b": (2, {"d": 3}), "nothing": None, "empty": {}}, ("'b/1'", "['c']", "['d']")),
        ({"a": 1, "b": (2,), "nothing": None, "empty": {}}, ("'b'", "a tuple of 2", "a tuple of 1")),
        ({"a": (1,), "b": (2, {"c": 3}), "nothing": None, "empty": {}}, ("'a'", "a leaf", "a tuple of 1")),
        ({"a": 1, "b": 2, "nothing": None, "empty": {}}, ("'b'", "a tuple of 2", "a leaf of type int")),
        ({"a": 1, "b": (2, {"c": 3}), "nothing": 0, "empty": {}}, ("'nothing'", "nothing", "a leaf of type int")),
        (5, ("'/'", "a dict with keys", "a leaf of type int")),
    ),
)
def test_map_names_where_trees_differ(other, words):
    with pytest.raises(SpecError) as caught:
        tree.map(lambda a, b: a, NESTED, other)
    for word in words:
        assert word in str(caught.value)


def test_unflatten_is_the_inverse_of_leaves():
    assert tree.unflatten(NESTED, tree.leaves(NESTED)) == NESTED


def test_unflatten_refuses_too_many_values():
    with pytest.raises(SpecError, match="a tree of 2 leaves cannot take 3 values"):
        tree.unflatten((0, 0), [1, 2, 3])


def test_stack_and_concatenate_work_leaf_by_leaf():
    parts = [{"a": np.full((2, 3), i), "b": (np.full(2, -i),)} for i in range(4)]
    stacked, joined = tree.stack(parts, axis=1), tree.concatenate(parts)
    assert stacked["a"].shape == (2, 4, 3)
    assert stacked["b"][0].tolist() == [[0, -1, -2, -3]] * 2
    assert joined["a"].shape == (8, 3)
    assert joined["b"][0].tolist() == [0, 0, -1, -1, -2, -2, -3, -3]


def test_take_gives_views_for_slices_and_put_writes_into_them():
    columns = {"a": np.zeros(4), "b": (np.zeros((4, 2)),)}
    tree.put(columns, slice(1, 3), {"a": np.ones(2), "b": (np.full((2, 2), 2.0),)})
    assert columns["a"].tolist() == [0, 1, 1, 0]
    view = tree.take(columns, slice(1, 2))
    view["b"][0][:] = 7
    assert columns["b"][0][1].tolist() == [7, 7]


def test_put_refuses_another_structure():
    with pytest.raises(SpecError, match="'a'"):
        tree.put({"a": np.zeros(2)}, 0, {"a": (1,)})


def test_zeros_has_the_leading_axes_before_each_shape():
    specs = {"frame": LeafSpec((4, 4), np.dtype(np.uint8)), "n": LeafSpec((), np.dtype(np.int64))}
    found = tree.zeros(specs, 5, 2)
    assert specs_of(found, batch_axes=2) == specs
    assert found["frame"].shape == (5, 2, 4, 4)
    assert not found["n"].any()


def test_specs_are_those_of_the_rows():
    batch = {"frame": np.zeros((3, 4, 4), np.uint8), "n": np.zeros(3)}
    specs = specs_of(batch)
    assert specs == {"frame": LeafSpec((4, 4), np.dtype(np.uint8)), "n": LeafSpec((), np.dtype(np.float64))}
    assert row_nbytes(specs) == 16 + 8
    assert row_nbytes(None) == 0
    check_batch(specs, batch, (3,), "obs")


@pytest.mark.parametrize(
    ("batch", "words"),
    (
        ({"a": np.zeros((3, 2)), "b": (np.zeros(3, np.int32),)}, ("dtype int64", "dtype int32", "'b/0'")),
        ({"a": np.zeros((3, 1)), "b": (np.zeros(3, np.int64),)}, ("(3, 2)", "(3, 1)", "'a'")),
        ({"a": np.zeros((2, 2)), "b": (np.zeros(3, np.int64),)}, ("(3, 2)", "(2, 2)", "'a'")),
        ({"a": np.zeros((3, 2))}, ("keys ['a', 'b']", "keys ['a']")),
    ),
)
def test_check_batch_names_the_leaf(batch, words):
    specs = {"a": LeafSpec((2,), np.dtype(np.float64)), "b": (LeafSpec((), np.dtype(np.int64)),)}
    with pytest.raises(SpecError) as caught:
        check_batch(specs, batch, (3,), "worker 1: obs")
    for word in (*words, "worker 1: obs"):
        assert word in str(caught.value)


def test_check_batch_names_a_lone_leaf_by_where_alone():
    with pytest.raises(SpecError, match=r"^reward: expected shape \(3,\), dtype float64, found shape \(2,\)"):
        check_batch(LeafSpec((), np.dtype(np.float64)), np.zeros(2), (3,), "reward")


def test_check_batch_matches_by_key_not_by_order():
    specs = {"a": LeafSpec((2,), np.dtype(np.float64)), "b": LeafSpec((), np.dtype(np.int64))}
    check_batch(specs, {"b": np.zeros(3, np.int64), "a": np.zeros((3, 2))}, (3,), "obs")
