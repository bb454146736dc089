"""Sampling without replacement."""

import numpy as np
import pytest

from helpers.integer_ring import advance, assert_frequencies, filled, ring_of
from outrider import ConfigError, OutriderError, WithoutReplacement


def started(steps=5, lanes=2, capacity=20, **settings):
    ring = filled(lanes, capacity, steps)
    draws = WithoutReplacement(**settings).start(ring)
    rng = np.random.default_rng(0)

    def draw(count, accepts=None):
        serials, weights = draws.draw(count, rng, accepts)
        draws.check()
        assert len(serials) == len(weights) == count
        assert len(set(serials.tolist())) == count
        return serials.tolist()

    return ring, draws, draw


def test_each_step_comes_once_in_each_epoch():
    ring, draws, draw = started()
    for epoch in range(3):
        assert sorted(draw(4) + draw(6)) == ring.serials().tolist()
        assert draws.epoch == epoch + 1


def test_orders_are_random():
    ring, _, draw = started()
    firsts = []
    for _ in range(3000):
        firsts.append(draw(1)[0])
        draw(9)
    assert_frequencies([firsts.count(serial) for serial in ring.serials()], np.ones(10))


def test_what_is_left_is_filled_up_from_the_next_epoch_and_no_batch_has_a_step_twice():
    _, draws, draw = started()
    flat = [serial for _ in range(70) for serial in draw(7)]
    assert draws.epoch == 49
    for epoch in range(49):
        assert sorted(flat[10 * epoch : 10 * epoch + 10]) == list(range(10))


def test_what_is_left_is_left_out():
    _, draws, draw = started(drop_last=True)
    for epoch in range(20):
        assert len({*draw(4), *draw(4)}) == 8
        assert draws.epoch == epoch + 1


@pytest.mark.parametrize("drop_last", (False, True))
def test_what_was_overwritten_is_passed_over_and_what_came_is_in_the_next_epoch(drop_last):
    ring, _, draw = started(steps=10, drop_last=drop_last)
    there = set(range(20))
    seen = draw(5)
    new = advance(ring, [0, 1], 4)
    rest = sorted(there - set(seen) - set(range(8)))
    assert sorted(draw(len(rest))) == rest
    assert sorted(draw(20)) == sorted({*range(8, 20), *new})


def test_only_what_the_view_can_begin_with_is_in_an_epoch():
    ring, draws, draw = started(steps=10)
    odd = [serial for serial in ring.serials() if serial % 2]
    for _ in range(3):
        assert sorted(draw(10, lambda serials: serials % 2 == 1)) == odd
    assert draws.epoch == 3


@pytest.mark.parametrize("drop_last", (False, True))
def test_more_than_an_epoch_is_refused_and_nothing_is_used_up(drop_last):
    _, draws, draw = started(drop_last=drop_last)
    first = draw(6)
    with pytest.raises(OutriderError, match=r"expected 11 steps.*without replacement.*found 10"):
        draw(11)
    assert sorted(first + draw(4)) == list(range(10))
    assert draws.epoch == 1


def test_it_goes_on_in_the_middle_of_an_epoch():
    _, draws, draw = started()
    first = draw(6)
    other = WithoutReplacement().start(filled(2, 20, 5))
    other.restore(draws.state())
    other.check()
    found = other.draw(4, np.random.default_rng(5), None)[0].tolist()
    assert found == draw(4)
    assert sorted(first + found) == list(range(10))
    with pytest.raises(ConfigError, match="int64"):
        WithoutReplacement().start(ring_of(1, 1)).restore({"order": np.ones(3), "epoch": 1})
