"""Uniform sampling, and drawing again where a view cannot begin."""

import numpy as np
import pytest

from helpers.integer_ring import advance, assert_frequencies, counts_of, filled, ring_of
from outrider import ConfigError, Newest, OutriderError, Prioritized, Stale, Uniform, WithoutReplacement
from outrider.replay.samplers import accepted

SAMPLERS = (Uniform(), Prioritized(), WithoutReplacement(), Newest(), Stale(3))


@pytest.mark.parametrize("uneven", (False, True))
@pytest.mark.parametrize("share", (1, 3, 500))
def test_uniform_over_all_steps_that_can_be_drawn(uneven, share):
    ring = filled(3, 1500, 600)
    if uneven:
        advance(ring, 1, 77)
    possible = ring.serials()[::share]
    accepts = None if share == 1 else lambda serials: np.isin(serials, possible)
    serials, weights = Uniform().start(ring).draw(60_000, np.random.default_rng(0), accepts)
    assert_frequencies(counts_of(serials, possible), np.ones(len(possible)))
    assert (weights == 1).all()


@pytest.mark.parametrize("rate", (1.0, 0.5, 0.05, 0.001, 0.0))
def test_few_proposals_are_made_where_most_are_accepted_and_never_many_more_than_the_budget(rate):
    rng = np.random.default_rng(0)
    made, chosen = [], []
    found = accepted(
        lambda n: made.append(n) or np.arange(n),
        100,
        lambda serials: rng.random(len(serials)) < rate,
        lambda: chosen.append(1) or np.zeros(100, np.int64),
        20_000,
    )
    assert len(found) == 100
    assert sum(made) <= 26_000
    assert bool(chosen) == (rate < 0.003)
    assert rate < 0.003 or sum(made) < 300 / rate


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_nothing_to_draw_says_so(sampler):
    draws = sampler.start(ring_of(2, 10))
    with pytest.raises(OutriderError, match="found 0"):
        draws.draw(1, np.random.default_rng(0), None)
    ring = ring_of(2, 10)
    draws = sampler.start(ring)
    advance(ring, [0, 1], 5)
    with pytest.raises(OutriderError, match=r"expected 1 .*found 0"):
        draws.draw(1, np.random.default_rng(0), lambda serials: np.zeros(len(serials), bool))
    draws.check()


@pytest.mark.parametrize("sampler", [one for one in SAMPLERS if not isinstance(one, Prioritized)], ids=repr)
def test_priorities_that_nobody_uses_are_refused(sampler):
    draws = sampler.start(ring_of(2, 10))
    assert not draws.has_priorities
    assert draws.stale_updates == 0
    with pytest.raises(ConfigError, match=r"sampler=outrider.Prioritized\(\)"):
        draws.update(np.zeros(1, int), np.ones(1))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_every_sampler_goes_on_from_its_state(sampler):
    rings, both = [ring_of(2, 13), ring_of(2, 13)], []
    for ring in rings:
        both.append(sampler.start(ring))
        for version in range(5):
            advance(ring, [0, 1], 2, version)
    both[0].draw(5, np.random.default_rng(9), None)
    state = both[0].state()
    both[1].restore(state)
    rng = np.random.default_rng(1), np.random.default_rng(1)
    for step in range(6):
        one, other = (draws.draw(4, own, lambda serials: serials % 3 > 0) for draws, own in zip(both, rng, strict=True))
        assert (one[0] == other[0]).all()
        assert (one[1] == other[1]).all()
        for ring, draws in zip(rings, both, strict=True):
            advance(ring, step % 2, 1, 5)
            draws.check()
    # What it has returned is a copy.
    for value in state.values():
        if isinstance(value, np.ndarray):
            value[:] = 0
    both[0].check()


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_every_sampler_can_begin_with_a_ring_that_is_not_empty(sampler):
    ring = ring_of(2, 12)
    other = ring_of(2, 12)
    known, fresh = sampler.start(ring), sampler.start(other)
    advance(ring, [0, 1], 5, 1)
    other.listeners.clear()
    advance(other, [0, 1], 5, 1)
    fresh.begin()
    fresh.check()
    found = [draws.draw(5, np.random.default_rng(3), None)[0].tolist() for draws in (known, fresh)]
    assert found[0] == found[1]
