"""Random calls to a replay buffer, against lists of steps in plain Python; all it holds is looked at after each."""

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from helpers.plain_rows import NESTINGS, assert_equal, state_of, tree_of
from helpers.replay_model import BLIND_ENDS, ENDS, Model, Streams
from helpers.replay_views import (
    check_episodes,
    check_hindsight,
    check_sequences,
    check_transitions,
    fits,
    hindsight_reward,
    hindsight_terminated,
    is_over,
    is_whole,
)
from helpers.stacks import Stacks
from outrider.replay.buffer import ReplayBuffer
from outrider.replay.hindsight import Hindsight
from outrider.replay.sequences import Sequences
from outrider.replay.transitions import Transitions
from outrider.replay.whole_episodes import WholeEpisodes

VIEWS = st.tuples(
    st.builds(Transitions, n_step=st.integers(1, 5), gamma=st.just(0.5)),
    st.integers(1, 6).flatmap(
        lambda length: st.builds(
            Sequences, st.just(length), st.integers(0, length - 1), stride=st.integers(1, 3), pad=st.booleans()
        )
    ),
)
SIZES = {
    "lanes": st.integers(1, 4),
    "capacity": st.integers(3, 64),
    "views": VIEWS,
    "stack": st.sampled_from((1, 1, 2, 3, 4)),
}
SEEDS = st.integers(0, 1 << 20)
HINDSIGHT = [
    Hindsight(strategy, 2, reward=hindsight_reward, terminated=hindsight_terminated, gamma=0.5)
    for strategy in ("final", "future", "episode")
]


class Machine(RuleBasedStateMachine):
    """What every buffer is asked for and compared with."""

    numbers_itself = False

    def open(self, streams, capacity, views, seed):
        """Compare a buffer with the streams, of which those with stacks are stored frame by frame."""
        self.rng, self.streams = streams.rng, streams
        self.model = Model(capacity, streams.lanes)
        stack = streams.nesting.count if callable(streams.nesting) else 1
        view, self.sequences = (replace(one, frame_stack=stack) for one in views)
        # Longer ones fit into no lane.
        length = min(self.sequences.length, capacity // streams.lanes)
        self.sequences = replace(self.sequences, length=length, burn_in=min(self.sequences.burn_in, length - 1))
        self.replay = ReplayBuffer(capacity, streams.spec(), view=view, seed=seed)
        # More views of the same rows.
        ring = self.replay._ring
        self.sequence_look = self.sequences.start(ring)
        self.episode_look = WholeEpisodes().start(ring)
        has_goals = streams.nesting == "goals" or stack > 1
        self.hindsight = [(one, one.start(ring)) for one in HINDSIGHT] if has_goals else []

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
        windows = [self.model.window(lane, at, self.replay.view.n_step) for lane, at in places]
        good = [window[-1].is_usable_end for window in windows]
        taken, windows = self.gather(self.replay._look, serials, windows, good)
        if windows:
            check_transitions(taken, windows, self.replay.view.gamma, self.streams.nesting)
            self.compare_episodes(taken.episode_id.tolist(), [window[0].episode for window in windows])
        windows = [self.model.window(lane, at, self.sequences.length) for lane, at in places]
        good = [fits(window, self.sequences) for window in windows]
        taken, windows = self.gather(self.sequence_look, serials, windows, good)
        if windows:
            check_sequences(taken, windows, self.sequences, self.streams.nesting)
            self.compare_episodes(taken.episode_id.tolist(), [window[0].episode for window in windows])
        every = [self.model.window(lane, at) for lane, at in places]
        taken, windows = self.gather(self.episode_look, serials, every, [is_whole(window) for window in every])
        if windows:
            check_episodes(taken, windows, self.streams.nesting)
            self.compare_episodes(taken.episodes.episode_id.tolist(), [window[0].episode for window in windows])
        befores = [(window, self.model.before(*place)) for window, place in zip(every, places, strict=True)]
        for view, look in self.hindsight:
            taken, pairs = self.gather(look, serials, befores, [is_over(window) for window in every])
            if pairs:
                check_hindsight(taken, *zip(*pairs, strict=True), view)

    def gather(self, look, serials, expected, good):
        """What a view makes of the steps that it should accept, and accepts; what is expected of those."""
        good = np.array(good, bool)
        if look.accepts is not None:
            assert_equal(look.accepts(serials), good)
        chosen = np.flatnonzero(good)
        batch = look.gather(serials[chosen], np.ones(len(chosen)), self.rng) if len(chosen) else None
        return batch, [expected[i] for i in chosen]


class ExtendingMachine(Machine):
    """Records come in."""

    @initialize(
        **SIZES,
        seed=SEEDS,
        nesting=st.sampled_from((*NESTINGS, "goals", "texts")),
        ends=st.sampled_from([ENDS, BLIND_ENDS]),
    )
    def begin(self, lanes, capacity, views, stack, seed, nesting, ends):
        rng = np.random.default_rng(seed)
        nesting = Stacks(stack, rng) if stack > 1 else nesting
        streams = Streams(min(lanes, capacity), rng, nesting, ends, stateless=0.1)
        self.open(streams, capacity, views, seed)

    @rule(length=st.integers(1, 9))
    def a_rollout(self, length):
        record, steps = self.streams.rollout(length)
        self.take(record, steps)

    @rule(length=st.integers(20, 80))
    def a_rollout_longer_than_the_buffer(self, length):
        record, steps = self.streams.rollout(length)
        self.take(record, steps)

    @precondition(lambda self: not callable(self.streams.nesting))
    @rule(length=st.integers(2, 9), data=st.data())
    def a_rollout_with_seams(self, length, data):
        """Somebody resets lanes meanwhile, and nobody tells: the rollout says that one led to the other."""
        places = st.tuples(st.integers(0, length - 2), st.integers(0, self.streams.lanes - 1))
        self.take(*self.streams.rollout_with_seams(length, data.draw(st.sets(places, max_size=4))))

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
    def begin(self, lanes, capacity, views, stack, seed):
        rng = np.random.default_rng(seed)
        nesting = Stacks(stack, rng) if stack > 1 else "dict"
        self.open(Streams(min(lanes, capacity), rng, nesting), capacity, views, seed)

    @rule(count=st.integers(1, 12))
    def add(self, count):
        for _ in range(count):
            lanes = self.rng.permutation(self.streams.lanes)[: self.rng.integers(1, self.streams.lanes + 1)]
            # A collector marks cuts; a loop of one's own just goes on with other observations.
            steps = [self.streams.step(int(lane)) for lane in lanes]
            obs, behind = ([getattr(one, name) for one in steps] for name in ("obs", "next_obs"))
            whole = len(lanes) == self.streams.lanes and (np.diff(lanes) > 0).all()
            self.replay.add(
                obs=tree_of(obs, self.streams.nesting),
                action=np.array(obs) * 7 % 1009,
                reward=[one.reward for one in steps],
                next_obs=tree_of(behind, self.streams.nesting),
                terminated=np.array([one.terminated for one in steps]),
                truncated=np.array([one.truncated for one in steps]),
                state=state_of(obs) if (with_state := self.rng.random() < 0.9) else None,
                env_id=None if whole else lanes,
            )
            ends = ["run" if one.end == "cut" else one.end for one in steps]
            pairs = zip(steps, ends, strict=True)
            self.model.add([replace(one, end=end, has_state=with_state) for one, end in pairs])

    def compare_episodes(self, found, expected):
        # The numbers are its own: no two episodes have the same one, and none has two.
        assert len(set(zip(found, expected, strict=True))) == len(set(found)) == len(set(expected))


TestExtending, TestAdding = ExtendingMachine.TestCase, AddingMachine.TestCase
TestExtending.settings = TestAdding.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
