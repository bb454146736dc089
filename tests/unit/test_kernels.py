"""The counter-based generator: equal to a plain reference, uniform, and unrelated over keys, lanes, steps, columns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.kernels import normals, uniforms

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def reference(key, lane, step, k):
    state = mix((key + GOLDEN) & MASK)
    for number in (lane, step):
        state = mix((state + GOLDEN * (number + 1)) & MASK)
    return [(mix((state + GOLDEN * (column + 1)) & MASK) >> 11) * 2.0**-53 for column in range(k)]


def draw(key, lanes, steps, k):
    return uniforms(np.uint64(key), np.asarray(lanes, np.int64), np.asarray(steps, np.int64), k)


def test_splitmix64_published_outputs():
    # The first outputs of the reference implementation, http://prng.di.unimi.it/splitmix64.c, for seed 1234567.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [mix((1234567 + GOLDEN * (i + 1)) & MASK) for i in range(4)] == expected


@given(
    key=st.integers(0, MASK),
    rows=st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)), max_size=5),
    k=st.integers(0, 4),
)
def test_is_the_reference_to_the_bit(key, rows, k):
    lanes, steps = [lane for lane, _ in rows], [step for _, step in rows]
    expected = np.array([reference(key, lane, step, k) for lane, step in rows]).reshape(len(rows), k)
    np.testing.assert_array_equal(draw(key, lanes, steps, k), expected)


def test_a_row_does_not_depend_on_the_others():
    lanes, steps = np.arange(50), np.arange(50) * 3
    whole = draw(5, lanes, steps, 3)
    order = np.random.default_rng(0).permutation(50)
    np.testing.assert_array_equal(draw(5, lanes[order], steps[order], 3), whole[order])
    np.testing.assert_array_equal(draw(5, lanes[7:8], steps[7:8], 3), whole[7:8])


def grid(vary):
    """20 000 draws with one of key, lane, step, column counting up and the others fixed."""
    count = 20_000
    zeros, up = np.zeros(count, np.int64), np.arange(count)
    if vary == "lane":
        return draw(1, up, zeros, 1)[:, 0]
    if vary == "step":
        return draw(1, zeros, up, 1)[:, 0]
    if vary == "column":
        return draw(1, [0], [0], count)[0]
    return np.array([draw(key, [0], [0], 1)[0, 0] for key in range(count)])


@pytest.mark.parametrize("vary", ("key", "lane", "step", "column"))
def test_uniform_and_uncorrelated_along_each_axis(vary):
    values = grid(vary)
    assert values.min() >= 0.0
    assert values.max() < 1.0
    counts = np.bincount((values * 64).astype(int), minlength=64)
    expected = len(values) / 64
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert 30 < chi_square < 110  # 63 degrees of freedom: mean 63, standard deviation 11
    for lag in (1, 2, 3, 16):
        correlation = np.corrcoef(values[:-lag], values[lag:])[0, 1]
        assert abs(correlation) < 4.5 / np.sqrt(len(values))


def test_pairs_of_neighbours_fill_the_square():
    lanes, steps = (axis.reshape(-1) for axis in np.meshgrid(np.arange(160), np.arange(160)))
    values = draw(3, lanes, steps, 2)
    cells = np.bincount((values[:, 0] * 16).astype(int) * 16 + (values[:, 1] * 16).astype(int), minlength=256)
    expected = len(values) / 256
    assert 150 < ((cells - expected) ** 2 / expected).sum() < 370  # 255 degrees of freedom: 255 +- 23


def test_no_two_of_a_run_are_equal():
    lanes, steps = (axis.reshape(-1) for axis in np.meshgrid(np.arange(300), np.arange(300)))
    values = np.concatenate([draw(key, lanes, steps, 2).reshape(-1) for key in range(3)])
    assert len(np.unique(values)) == len(values)


# -- normal numbers ----------------------------------------------------------------------------------------------------


@given(key=st.integers(0, MASK), lane=st.integers(0, 10**6), step=st.integers(0, 10**9), k=st.integers(0, 3))
def test_normals_are_those_of_box_and_muller(key, lane, step, k):
    uniform = np.array(reference(key, lane, step, 2 * k)).reshape(k, 2)
    expected = np.sqrt(-2 * np.log1p(-uniform[:, 0])) * np.cos(2 * np.pi * uniform[:, 1])
    found = normals(np.uint64(key), np.array([lane]), np.array([step]), k)
    np.testing.assert_allclose(found, expected.reshape(1, k), rtol=1e-13, atol=1e-13)


def test_normals_are_normal_and_unrelated():
    drawn = normals(np.uint64(3), np.arange(30_000), np.zeros(30_000, np.int64), 2)
    edges = np.array([-1.2815515655, -0.5244005127, 0.0, 0.5244005127, 1.2815515655])  # quantiles .1 .3 .5 .7 .9
    counts = np.histogram(drawn, [-np.inf, *edges, np.inf])[0]
    expected = 60_000 * np.array([0.1, 0.2, 0.2, 0.2, 0.2, 0.1])
    assert ((counts - expected) ** 2 / expected).sum() < 20.5  # 5 degrees of freedom, p = 0.001
    for first, second in ((drawn[:, 0], drawn[:, 1]), (drawn[1:, 0], drawn[:-1, 0]), (drawn[1:, 0], drawn[:-1, 1])):
        assert abs(np.corrcoef(first, second)[0, 1]) < 0.03
