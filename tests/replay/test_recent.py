"""The newest steps, and those of recent weights."""

import numpy as np
import pytest

from helpers.integer_ring import advance, assert_frequencies, counts_of, filled, ring_of
from outrider import ConfigError, Newest, OutriderError, Stale


def newest(ring, count, accepts=None):
    serials, weights = Newest().start(ring).draw(count, np.random.default_rng(0), accepts)
    assert (weights == 1).all()
    return serials.tolist()


def test_the_newest_of_each_lane_in_turn():
    ring = filled(3, 30, 5)
    assert newest(ring, 7) == [12, 13, 14, 9, 10, 11, 6]


def test_lanes_that_differ_take_turns_and_those_that_have_no_more_are_passed_over():
    ring = filled(2, 10, 1)
    advance(ring, 1, 3)
    # Lane 0 holds 0; lane 1 holds 1, 3, 5, 7.
    assert newest(ring, 5) == [0, 7, 5, 3, 1]
    with pytest.raises(OutriderError, match=r"expected 6 different steps.*found 5"):
        newest(ring, 6)


def test_only_what_the_view_can_begin_with():
    ring = filled(2, 2000, 1000)
    assert newest(ring, 3, lambda serials: serials % 500 == 0) == [1500, 1000, 500]
    with pytest.raises(OutriderError, match=r"expected 5 .*found 4"):
        newest(ring, 5, lambda serials: serials % 500 == 0)


def stale(max_lag, versions, lanes=1, capacity=1000):
    """A ring to whose lanes steps of these versions came."""
    ring = ring_of(lanes, capacity)
    draws = Stale(max_lag).start(ring)
    for version in versions:
        advance(ring, np.arange(lanes), 1, version)
    return ring, draws


def check_draws(ring, draws, expected, accepts=None):
    serials, weights = draws.draw(20_000, np.random.default_rng(0), accepts)
    draws.check()
    assert_frequencies(counts_of(serials, expected), np.ones(len(expected)))
    assert (weights == 1).all()


def test_uniform_over_steps_of_recent_versions():
    ring, draws = stale(2, np.repeat(np.arange(7), 10), lanes=2)
    check_draws(ring, draws, np.arange(80, 140))
    check_draws(ring, draws, np.arange(81, 140, 2), lambda serials: serials % 2 == 1)
    advance(ring, 0, 1, 9)
    check_draws(ring, draws, [140])
    assert draws.oldest == 7
    check_draws(*stale(0, [3, 3, 3]), [0, 1, 2])


def test_versions_that_go_back_count_by_what_they_are():
    ring, draws = stale(1, [0, 5, 0, 0, 6, 5, 2, 6, 3, 0])
    check_draws(ring, draws, [1, 4, 5, 7])
    for _ in range(500):
        advance(ring, 0, 1, 0)
    check_draws(ring, draws, [1, 4, 5, 7])


def test_the_newest_version_counts_although_its_steps_are_gone():
    ring, draws = stale(3, [9, 1, 1, 1, 1, 1], capacity=4)
    with pytest.raises(OutriderError, match=r"version 6 or later, the newest seen being 9.*a greater lag than 3"):
        draws.draw(1, np.random.default_rng(0), None)
    advance(ring, 0, 1, 7)
    check_draws(ring, draws, [6])
    ring.clear()
    draws.check()
    with pytest.raises(OutriderError, match="1 steps to draw from"):
        draws.draw(1, np.random.default_rng(0), None)


@pytest.mark.parametrize("max_lag", (-1, 1.5, None))
def test_a_lag_that_makes_no_sense_is_refused(max_lag):
    with pytest.raises(ConfigError, match=r"Stale\(max_lag\)"):
        Stale(max_lag)
