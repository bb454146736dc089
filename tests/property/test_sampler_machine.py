"""Random calls to all samplers of one ring, against dicts in plain Python, on whole numbers alone."""

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from helpers.integer_ring import advance, ring_of
from outrider import ConfigError, Newest, OutriderError, Prioritized, Stale, Uniform, WithoutReplacement

ALPHA = 0.7
PRIORITIES = st.one_of(st.just(0.0), st.floats(1e-6, 1e6), st.integers(0, 3).map(float))
ACCEPTED = st.sampled_from((1, 1, 2, 3, 7))


class SamplerMachine(RuleBasedStateMachine):
    """Steps come and go; every sampler has to know."""

    @initialize(lanes=st.integers(1, 4), capacity=st.integers(4, 64), lag=st.integers(0, 3), drop_last=st.booleans())
    def begin(self, lanes, capacity, lag, drop_last):
        self.lanes, self.lag = lanes, lag
        self.ring = ring_of(lanes, capacity)
        self.samplers = {
            "uniform": Uniform(),
            "prioritized": Prioritized(alpha=ALPHA),
            "epochs": WithoutReplacement(drop_last=drop_last),
            "newest": Newest(),
            "stale": Stale(lag),
        }
        self.draws = {name: sampler.start(self.ring) for name, sampler in self.samplers.items()}
        self.rng = np.random.default_rng(capacity)
        # By serial number: what priority**alpha is, and the version.
        self.numbers, self.versions = {}, {}
        self.newest, self.drawn, self.gone = None, 0, 0
        # What is still to come of the epoch.
        self.to_come = set()

    # -- what happens to the ring ------------------------------------------------------------------------------------

    @rule(data=st.data(), count=st.integers(1, 20), version=st.integers(0, 9))
    def steps_come(self, data, count, version):
        lanes = data.draw(st.lists(st.integers(0, self.lanes - 1), min_size=1, unique=True))
        for _ in range(count):
            # The oldest leave before the new ones come.
            before = set(self.ring.serials().tolist())
            serials = advance(self.ring, lanes, 1, version)
            for gone in before - set(self.ring.serials().tolist()):
                del self.numbers[gone], self.versions[gone]
            highest = max(self.numbers.values(), default=0.0) or 1.0
            for serial in serials:
                self.numbers[serial], self.versions[serial] = highest, version
        self.newest = version if self.newest is None else max(self.newest, version)

    @rule()
    def everything_is_let_go_of(self):
        self.ring.clear()
        self.numbers.clear()
        self.versions.clear()

    # -- priorities --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.ring.heads.any())
    @rule(data=st.data())
    def priorities_change(self, data):
        given_ = [
            s for s in range(self.ring.heads.max() * self.lanes) if s // self.lanes < self.heads()[s % self.lanes]
        ]
        pairs = data.draw(st.lists(st.tuples(st.sampled_from(given_), PRIORITIES), max_size=30))
        serials = np.array([serial for serial, _ in pairs], np.int64)
        stale = self.draws["prioritized"].update(serials, np.array([priority for _, priority in pairs]))
        gone = [serial for serial, _ in pairs if serial not in self.numbers]
        assert stale == len(gone)
        self.gone += stale
        self.numbers |= {serial: priority**ALPHA for serial, priority in pairs if serial in self.numbers}

    @precondition(lambda self: self.numbers)
    @rule(wrong=st.sampled_from((np.nan, -1.0, np.inf)))
    def wrong_priorities_change_nothing(self, wrong):
        serials = self.ring.serials()
        with pytest.raises(ConfigError):
            self.draws["prioritized"].update(serials, np.array([3.0] * (len(serials) - 1) + [wrong]))

    def heads(self):
        return self.ring.heads.tolist()

    # -- draws -------------------------------------------------------------------------------------------------------

    def draw(self, name, count, every):
        accepts = None if every == 1 else lambda serials: serials % every == 0
        serials, weights = self.draws[name].draw(count, self.rng, accepts)
        assert serials.dtype == np.int64
        assert serials.shape == weights.shape == (count,)
        return serials.tolist(), weights

    def possible(self, every):
        return [serial for serial in self.numbers if serial % every == 0]

    def enough(self, name, count, every, possible, need=1):
        """Whether there is enough to draw from; if not, drawing says so."""
        if len(possible) >= need:
            return True
        with pytest.raises(OutriderError, match=rf"expected {need} .*found {len(possible)}"):
            self.draw(name, count, every)
        return False

    @rule(count=st.integers(1, 40), every=ACCEPTED)
    def draw_uniformly(self, count, every):
        possible = self.possible(every)
        if self.enough("uniform", count, every, possible):
            serials, _ = self.draw("uniform", count, every)
            assert set(serials) <= set(possible)

    @rule(count=st.integers(1, 40), every=ACCEPTED)
    def draw_by_priorities(self, count, every):
        possible = self.possible(every)
        if not self.enough("prioritized", count, every, possible):
            return
        serials, weights = self.draw("prioritized", count, every)
        self.drawn += count
        assert set(serials) <= set(possible)
        numbers = np.array([self.numbers[serial] for serial in serials])
        if any(self.numbers[serial] for serial in possible):
            assert (numbers > 0).all()
            np.testing.assert_allclose(weights, (numbers.min() / numbers) ** 0.4, rtol=1e-12)
        else:
            assert (weights == 1).all()

    @rule(count=st.integers(1, 40), every=ACCEPTED)
    def draw_the_newest(self, count, every):
        possible = self.possible(every)
        if self.enough("newest", count, every, possible, count):
            heads = self.heads()
            in_order = sorted(possible, key=lambda one: (heads[one % self.lanes] - one // self.lanes, one % self.lanes))
            assert self.draw("newest", count, every)[0] == in_order[:count]

    @rule(count=st.integers(1, 40), every=ACCEPTED)
    def draw_recent_versions(self, count, every):
        recent = [serial for serial in self.possible(every) if self.versions[serial] >= self.newest - self.lag]
        if self.enough("stale", count, every, recent):
            assert set(self.draw("stale", count, every)[0]) <= set(recent)

    @rule(count=st.integers(1, 40), every=ACCEPTED)
    def draw_without_replacement(self, count, every):
        possible = self.possible(every)
        left = self.to_come.intersection(possible)
        begins = count > len(left)
        if begins and not self.enough("epochs", count, every, possible, count):
            return
        serials = self.draw("epochs", count, every)[0]
        assert len(set(serials)) == count
        if not begins:
            assert set(serials) <= left
            # Those that the view could not begin with had their turn, too; which ones is a matter of chance.
            self.to_come = set(self.draws["epochs"].state()["order"].tolist()) & self.to_come - set(serials)
            assert left - set(serials) <= self.to_come
            return
        kept = set() if self.samplers["epochs"].drop_last else left
        assert kept <= set(serials) <= set(possible)
        self.to_come = set(possible) - (set(serials) - kept)
        assert set(self.draws["epochs"].state()["order"].tolist()) == self.to_come

    @rule()
    def another_goes_on_from_the_state(self):
        for name, sampler in self.samplers.items():
            state = self.draws[name].state()
            listeners = list(self.ring.listeners)
            other = sampler.start(self.ring)
            other.restore(state)
            self.ring.listeners[:] = [other if one is self.draws[name] else one for one in listeners]
            self.draws[name] = other

    # -- what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def all_know_what_is_there(self):
        self.ring.check()
        assert self.ring.serials().tolist() == sorted(self.numbers)
        for draws in self.draws.values():
            draws.check()
        prioritized = self.draws["prioritized"]
        numbers = [self.numbers[serial] for serial in sorted(self.numbers)]
        np.testing.assert_allclose(prioritized.state()["numbers"], numbers, rtol=1e-12, atol=0)
        assert (prioritized.drawn, prioritized.stale_updates) == (self.drawn, self.gone)


TestSamplers = SamplerMachine.TestCase
TestSamplers.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
