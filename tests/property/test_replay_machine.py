"""Random calls to a replay buffer, against lists of steps in plain Python; all it holds is looked at after each."""

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from helpers.plain_rows import NESTINGS, assert_equal, tree_of
from helpers.replay_model import Model, Streams
from outrider.replay.buffer import ReplayBuffer
from outrider.replay.transitions import Transitions

SIZES = {"lanes": st.integers(1, 4), "capacity": st.integers(4, 64), "n_step": st.integers(1, 5)}
SEEDS = st.integers(0, 1 << 20)


class Machine(RuleBasedStateMachine):
    """What every buffer is asked for and compared with."""

    numbers_itself = False

    def open(self, lanes, capacity, n_step, seed, nesting):
        self.rng = np.random.default_rng(seed)
        self.streams = Streams(lanes, self.rng, nesting)
        self.model = Model(capacity, lanes)
        self.n_step, self.gamma = n_step, 0.5
        view = Transitions(n_step=n_step, gamma=self.gamma)
        self.replay = ReplayBuffer(capacity, self.streams.spec(), view=view, seed=seed)

    @rule(data=st.data())
    def a_user_resets(self, data):
        self.streams.reset(data.draw(st.integers(0, self.streams.lanes - 1)))

    @precondition(lambda self: len(self.replay))
    @rule()
    def everything_is_let_go_of(self):
        self.replay.clear()
        self.model.clear()
        if self.numbers_itself:
            # What follows is a new episode to a buffer that has forgotten the one before.
            for lane in range(self.streams.lanes):
                self.streams.reset(lane)

    @invariant()
    def it_holds_what_the_lists_hold(self):
        self.replay.check()
        expected = self.model.serials()
        assert len(self.replay) == len(expected)
        if expected:
            self.compare(np.array(sorted(expected)), [expected[serial] for serial in sorted(expected)])

    def compare(self, serials, places):
        batch = self.replay._look.gather(serials, np.ones(len(serials)), self.rng)
        windows = [self.model.window(lane, at, self.n_step) for lane, at in places]
        firsts, lasts = [window[0] for window in windows], [window[-1] for window in windows]
        nesting = self.streams.nesting
        assert_equal(batch.obs, tree_of(np.array([one.obs for one in firsts], np.int64), nesting))
        assert_equal(batch.next_obs, tree_of(np.array([one.next_obs for one in lasts], np.int64), nesting))
        assert batch.terminated.tolist() == [one.terminated for one in lasts]
        assert batch.truncated.tolist() == [one.truncated for one in lasts]
        self.compare_episodes(batch.episode_id.tolist(), [one.episode for one in firsts])
        assert batch.step.tolist() == [one.step for one in firsts]
        assert batch.env_id.tolist() == [one.lane for one in firsts]
        assert batch.action.tolist() == [one.obs * 7 % 1009 for one in firsts]
        returns = [sum(self.gamma**i * one.reward for i, one in enumerate(window)) for window in windows]
        np.testing.assert_allclose(batch.reward, returns, rtol=1e-14)
        discounts = [0.0 if window[-1].terminated else self.gamma ** len(window) for window in windows]
        assert batch.discount.tolist() == discounts


class ExtendingMachine(Machine):
    """Records come in."""

    @initialize(**SIZES, seed=SEEDS, nesting=st.sampled_from(NESTINGS))
    def begin(self, lanes, capacity, n_step, seed, nesting):
        self.open(lanes, capacity, n_step, seed, nesting)

    @rule(length=st.integers(1, 9))
    def a_rollout(self, length):
        record, steps = self.streams.rollout(length)
        self.take(record, steps)

    @rule(length=st.integers(20, 80))
    def a_rollout_longer_than_the_buffer(self, length):
        record, steps = self.streams.rollout(length)
        self.take(record, steps)

    @rule(data=st.data(), count=st.integers(1, 30))
    def steps_of_any_lanes(self, data, count):
        lanes = self.rng.integers(0, self.streams.lanes, count).tolist()
        record, steps = self.streams.steps(lanes)
        self.take(record, steps)

    @rule(count=st.integers(2, 12))
    def steps_with_holes(self, count):
        _, steps = self.streams.steps([0] * count)
        kept = [one for one in steps if self.rng.random() < 0.6]
        if kept:
            self.take(self.streams.record(kept), kept)

    @rule(length=st.integers(1, 6))
    def episodes(self, length):
        record, steps = self.streams.rollout(length)
        by_lane = sorted(steps, key=lambda one: one.lane)
        self.take(record.segments(), by_lane)

    def take(self, record, steps):
        assert self.replay.extend(record) == len(steps)
        self.model.add(steps)

    def compare_episodes(self, found, expected):
        assert found == expected


class AddingMachine(Machine):
    """Loops that add one step at a time; the buffer numbers them."""

    numbers_itself = True

    @initialize(**SIZES, seed=SEEDS)
    def begin(self, lanes, capacity, n_step, seed):
        self.open(lanes, capacity, n_step, seed, "dict")

    @rule(count=st.integers(1, 12))
    def add(self, count):
        for _ in range(count):
            lanes = self.rng.permutation(self.streams.lanes)[: self.rng.integers(1, self.streams.lanes + 1)]
            # A collector marks cuts; a loop of one's own just goes on with other observations.
            steps = [self.streams.step(int(lane)) for lane in lanes]
            obs, behind = ([getattr(one, name) for one in steps] for name in ("obs", "next_obs"))
            whole = len(lanes) == self.streams.lanes and (np.diff(lanes) > 0).all()
            self.replay.add(
                obs=tree_of(obs, "dict"),
                action=np.array(obs) * 7 % 1009,
                reward=[one.reward for one in steps],
                next_obs=tree_of(behind, "dict"),
                terminated=np.array([one.terminated for one in steps]),
                truncated=np.array([one.truncated for one in steps]),
                env_id=None if whole else lanes,
            )
            self.model.add([replace(one, end="run" if one.end == "cut" else one.end) for one in steps])

    def compare_episodes(self, found, expected):
        # The numbers are its own: no two episodes have the same one, and none has two.
        assert len(set(zip(found, expected, strict=True))) == len(set(found)) == len(set(expected))


TestExtending, TestAdding = ExtendingMachine.TestCase, AddingMachine.TestCase
TestExtending.settings = TestAdding.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
