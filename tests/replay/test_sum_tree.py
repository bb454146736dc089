"""The sum tree against cumulative sums."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.integer_ring import assert_frequencies
from outrider.replay.sum_tree import FOREIGN, INVALID, SumTree

SIZES = st.one_of(st.integers(1, 20), st.sampled_from((63, 64, 65, 511, 512, 513, 600)))
WEIGHTS = st.one_of(st.just(0.0), st.integers(0, 9).map(float))
WILD = st.one_of(st.just(0.0), st.floats(1e-300, 1e300), st.floats(0.1, 2.0), st.just(5e-324))
LAST = np.nextafter(1.0, 0.0)


def filled(values):
    tree = SumTree(len(values))
    tree.set_all(np.array(values))
    tree.check()
    return tree


@given(st.data(), SIZES)
def test_each_place_is_found_where_the_cumulative_sum_says(data, size):
    values = data.draw(st.lists(WEIGHTS, min_size=size, max_size=size))
    tree = filled(values)
    total = int(sum(values))
    assert (tree.total, tree.top) == (total, max(values))
    if total:
        expected = [row for row, value in enumerate(values) for _ in range(int(value))]
        assert tree.find((np.arange(total) + 0.5) / total).tolist() == expected


@given(st.lists(WILD, min_size=1, max_size=70), st.lists(st.floats(0, 1, exclude_max=True), max_size=8))
def test_what_is_zero_is_never_found_whatever_is_rounded(values, uniforms):
    tree = filled(values)
    if tree.total:
        found = tree.find(np.array([0.0, LAST, 1.0, *uniforms]))
        assert (np.array(values)[found] > 0).all()
        ends = np.array(list(itertools.accumulate(values)))
        places = np.array([0.0, LAST, 1.0, *uniforms]) * tree.total
        off = 1e-13 * tree.total
        assert (places <= ends[found] + off).all()
        assert (places >= ends[found] - np.array(values)[found] - off).all()


@pytest.mark.parametrize("rows", (1, 7, 8, 9, 64, 65, 1000))
def test_the_last_row_and_the_first_are_found(rows):
    tree = filled(np.full(rows, 0.1))
    assert tree.find(np.array([0.0, LAST])).tolist() == [0, rows - 1]


def test_a_row_far_smaller_than_the_rest_is_found_where_it_is_alone():
    tree = filled([0.0] * 99 + [5e-324])
    assert tree.find(np.array([0.0, 0.5, LAST])).tolist() == [99, 99, 99]


@given(st.data(), SIZES)
def test_sums_do_not_depend_on_what_came_before(data, size):
    one, other = SumTree(size), SumTree(size)
    rows = st.lists(st.integers(0, size - 1), min_size=1, max_size=20)
    for _ in range(data.draw(st.integers(1, 5))):
        one.fill(np.array(data.draw(rows)), data.draw(WILD))
        one.check()
    other.set_all(one.leaves.copy())
    other.check()
    assert (one.sums == other.sums).all()
    assert (one.tops == other.tops).all()


def test_draws_are_proportional():
    values = np.arange(100.0) % 7
    counts = np.bincount(filled(values).find(np.random.default_rng(0).random(100_000)), minlength=100)
    assert_frequencies(counts, values)


def test_rows_become_the_serial_numbers_of_the_steps_in_them():
    # Two lanes of three rows each: lane 0 is about to take its position 4, lane 1 its position 2.
    tree = filled([1.0] * 6)
    serials = tree.draw(np.array([4, 2]), 6, (np.arange(6) + 0.5) / 6)
    assert serials.tolist() == [3 * 2, -1 * 2 + 1 + 2, 1 * 2, 1 * 2 + 1, 2 * 2, -1 * 2 + 1]


def update(tree, serials, values, exponent=0.5):
    # One lane, of which positions 2, 3, 4 are there, in five rows.
    bounds = np.array([2]), np.array([5]), 5
    return tree.update(bounds, np.array(serials), np.array(values), (exponent, 1e300))


def test_an_update_takes_powers_in_order_and_counts_what_is_gone():
    tree = SumTree(5)
    assert update(tree, [4, 1, 2, 4, 0], [9.0, 1.0, 4.0, 16.0, 1.0]) == 2
    assert tree.leaves.tolist() == [0, 0, 2, 0, 4]
    tree.check()


@pytest.mark.parametrize("wrong", (np.nan, -1.0, -np.inf, np.inf, -0.5, 1e308))
def test_an_update_with_something_wrong_changes_nothing(wrong):
    tree = SumTree(5)
    update(tree, [2, 3], [1.0, 1.0])
    assert update(tree, [2, 0, 4], [5.0, wrong, 1.0], exponent=1.0) == INVALID
    assert tree.leaves.tolist() == [0, 0, 1, 1, 0]


@pytest.mark.parametrize("serial", (-1, 5, 1 << 62))
def test_a_number_that_was_never_given_is_told_from_one_that_is_gone(serial):
    tree = SumTree(5)
    assert update(tree, [2, serial], [1.0, 1.0]) == FOREIGN
    assert not tree.total


def test_zero_stays_zero_and_what_is_above_stays_above_whatever_the_exponent():
    tree = SumTree(5)
    update(tree, [2, 3], [0.0, 7.0], exponent=0.0)
    assert tree.leaves.tolist() == [0, 0, 0, 1, 0]
    update(tree, [2, 3], [0.0, 1e-300], exponent=3.0)
    assert tree.leaves[3] > 0
