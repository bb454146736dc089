"""Collecting from batches that somebody else has made: the same rows as from the same environments inline."""

import warnings

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import outrider
from helpers.counter_batch import CounterBatch
from helpers.envs import CounterEnv, RandomLengthEnv
from outrider.errors import ConfigError, SpecError
from outrider.policies.base import Policy
from outrider.testing.envs import make_case

MODES = tuple(AutoresetMode)
NEXT_STEP, SAME_STEP, DISABLED = MODES
FACTORIES = [make_case("floats")] * 3


def sync(mode, factories=FACTORIES):
    return outrider.make_vec(SyncVectorEnv(factories, autoreset_mode=mode))


def collector_of(envs, seed=4):
    return outrider.Collector(envs, outrider.RandomPolicy(envs.single_action_space), seed=seed)


def by_lane(steps, num_envs=3):
    """The columns of each lane, in order of time."""
    names = ("obs", "action", "reward", "terminated", "truncated", "cut", "next_obs", "episode_id", "step")
    columns = {name: getattr(steps, name) for name in names}
    return [{name: column[steps.env_id == lane] for name, column in columns.items()} for lane in range(num_envs)]


def same_lanes(one, other, least=1):
    """Whether the lanes begin with the same rows."""
    for mine, theirs in zip(by_lane(one), by_lane(other), strict=True):
        rows = min(len(mine["reward"]), len(theirs["reward"]))
        assert rows >= least
        for name, column in mine.items():
            assert np.array_equal(column[:rows], theirs[name][:rows]), name
    return True


@pytest.mark.parametrize("mode", MODES)
def test_rollouts_and_steps_have_the_rows_of_the_same_environments_inline(mode):
    with outrider.make_vec(FACTORIES) as inline, sync(mode) as envs:
        theirs, ours = collector_of(inline), collector_of(envs)
        reference = theirs.steps(600)
        first, second = ours.rollout(40), ours.rollout(7)
        parts = [first.flatten(), second.flatten(), *(ours.steps(count) for count in (1, 50, 33, 100))]
        for part in (first, second, *parts):
            part.check()
        assert [len(part) for part in parts[2:]] == [1, 50, 33, 100]
        found = outrider.records.Steps.concatenate(parts)
        assert same_lanes(found, reference, least=60)
        dummies = ~first.valid
        assert bool(dummies.any()) == (mode == NEXT_STEP)
        assert len(first.flatten()) == len(first) == int(first.valid.sum())
        if mode == NEXT_STEP:
            assert not first.reward[dummies].any()
            # A dummy follows each end, and nothing else; the step behind it begins an episode.
            ends = first.terminated | first.truncated
            assert (dummies[1:] == ends[:-1]).all()
            assert (first.is_first[1:][dummies[:-1]]).all()
            assert not first.is_first[dummies].any()
        stats = ours.stats
        assert stats.steps == sum(map(len, parts)) + stats.carried


@pytest.mark.parametrize(("mode", "valid"), ((NEXT_STEP, 12), (SAME_STEP, 16), (DISABLED, 16)))
def test_eight_steps_of_two_counters_of_length_three(mode, valid):
    with sync(mode, [lambda: CounterEnv(3)] * 2) as envs:
        collector = collector_of(envs)
        rollout = collector.rollout(8)
        assert rollout.reward.shape == (8, 2)
        assert len(rollout) == valid
        steps = rollout.flatten()
        assert (steps.next_obs == steps.obs + 1).all()
        assert len(rollout.segments()) == (4 if valid == 12 else 6)
        assert collector.stats.steps == valid
        assert collector.stats.returns.tolist() == [3.0] * 4
        assert collector.stats.lengths.tolist() == [3] * 4


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("quota", (None, "per_env"))
def test_whole_episodes_are_counted_exactly(mode, quota):
    with sync(mode, [RandomLengthEnv] * 3) as envs:
        collector = collector_of(envs)
        collector.steps(10)
        for count in (1, 2, 7, 20):
            episodes = collector.episodes(count, quota=quota)
            episodes.check()
            assert len(episodes) == count
            assert episodes.is_complete.all()
            for episode in episodes:
                assert episode.obs[:, 0].tolist() == list(range(len(episode) + 1))
        # And on with what is left of the steps.
        assert len(collector.steps(25)) == 25


@pytest.mark.parametrize("mode", MODES)
def test_a_reset_cuts_and_nothing_is_joined_across_it(mode):
    with sync(mode, [lambda: CounterEnv(5)] * 2) as envs:
        collector = collector_of(envs)
        assert collector.steps(4).obs[:, 0].tolist() == [0, 0, 1, 1]
        collector.reset()
        steps = collector.steps(24)
        steps.check()
        assert (steps.next_obs == steps.obs + 1).all()
        assert steps.obs[:2, 0].tolist() == [0, 0]
        # Where a reset comes between an end and its dummy, and right behind a dummy, there is nothing to cut.
        for length in (5, 6):
            collector.reset()
            rollout = collector.rollout(length)
            assert not rollout.cut[-1].any()
            assert rollout.truncated[4].all()


class Memory(Policy):
    """Its state counts the steps since it was begun; so does an extra, which therefore tells what it was fed."""

    def initial_state(self, n):
        return np.zeros(n, np.int64)

    def act(self, obs, state, ctx):
        return {"action": np.zeros(len(state), np.int64), "count": state.copy(), "state": state + 1}


@pytest.mark.parametrize("mode", MODES)
def test_the_state_of_a_policy_begins_with_the_first_step_of_an_episode(mode):
    with sync(mode, [lambda: CounterEnv(3), lambda: CounterEnv(4)]) as envs:
        rollout = outrider.Collector(envs, Memory(), seed=0).rollout(20)
    steps = rollout.flatten()
    assert np.array_equal(steps.extras["count"], steps.step)
    assert np.array_equal(steps.state, steps.step)
    assert np.array_equal(steps.next_state, steps.step + 1)
    assert np.array_equal(steps.obs[:, 0], steps.step)


def test_infos_of_steps_and_observations():
    class Telling(CounterEnv):
        def reset(self, **arguments):
            return super().reset(**arguments)[0], {"at": 0}

        def step(self, action):
            *step, _ = super().step(action)
            return *step, {"at": self.count}

    for mode in MODES:
        source = SyncVectorEnv([lambda: Telling(3)] * 2, autoreset_mode=mode)
        with outrider.make_vec(outrider.Envs(source, info_keys=("at",))) as envs:
            rollout = collector_of(envs).rollout(8)
        steps = rollout.flatten()
        assert np.array_equal(steps.info["at"], steps.step + 1)
        assert np.array_equal(steps.obs_info["at"], steps.step)


@pytest.mark.parametrize("truncate", (False, True))
def test_blind_ends_are_marked(truncate):
    source = CounterBatch((2, 3), SAME_STEP, "nothing", truncate=truncate)
    with outrider.make_vec(source) as envs:
        collector = collector_of(envs)
        rollout, steps, episodes = collector.rollout(6), collector.steps(7), collector.episodes(2, quota="per_env")
    for record in (rollout, steps, episodes):
        record.check()
        ends = record.terminated | record.truncated
        assert ends.any()
        assert np.array_equal(record.blind, ends)
    assert not np.asarray(rollout.final_obs["count"]).any(), "nothing that could be taken for an observation"
    if truncate:
        with pytest.raises(SpecError, match="do not tell"):
            _ = rollout.next_obs
        with pytest.raises(SpecError, match="do not tell"):
            _ = steps.next_obs
        known = steps[~steps.blind]
        assert np.array_equal(known.next_obs["count"], known.obs["count"] + 1)
    else:
        assert rollout.next_obs["count"].shape == (6, 2, 1)


@pytest.mark.parametrize("mode", MODES)
def test_sources_written_by_hand(mode):
    with outrider.make_vec(CounterBatch((3, 5, 2), mode)) as envs:
        collector = collector_of(envs)
        steps = collector.steps(50)
        steps.check()
        assert np.array_equal(steps.next_obs["count"], steps.obs["count"] + 1)
        assert np.array_equal(steps.reward, steps.step + 1)
        if mode == SAME_STEP:
            # It has reset a lane that was to be held at its end, and cannot reset it alone.
            with pytest.raises(ConfigError, match="some of them"):
                collector.episodes(7)
            assert len(collector.episodes(3)) == 3
        else:
            episodes = collector.episodes(7)
            assert len(episodes) == 7
            assert episodes.returns.tolist() == [{3: 6, 5: 15, 2: 3}[len(one)] for one in episodes]
        assert len(collector.steps(20)) == 20


# -- pools -----------------------------------------------------------------------------------------------------------


def pool(num_envs=4, **settings):
    envpool = pytest.importorskip("envpool")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its spaces, about precision
        made = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=num_envs, seed=3, **settings)
        assert made.observation_space
    return made


def lanes_of(steps, num_envs=4):
    return by_lane(steps, num_envs)


def test_a_pool_and_its_asynchronous_side_give_each_lane_the_same_rows():
    found = []
    # Where the batch size does not divide the lanes, some of them are reset twice at the beginning.
    for settings in ({}, {"batch_size": 2}, {"batch_size": 1}):
        with outrider.make_vec(pool(**settings)) as envs:
            with pytest.warns(UserWarning, match=r"envpool\.make"):
                collector = collector_of(envs)
            steps = [collector.steps(count) for count in (7, 150, 43)]
            assert [len(some) for some in steps] == [7, 150, 43]
            found.append(lanes_of(outrider.records.Steps.concatenate(steps)))
    for other in found[1:]:
        compared = 0
        for mine, theirs in zip(found[0], other, strict=True):
            rows = min(len(mine["reward"]), len(theirs["reward"]))
            compared += rows
            for name, column in mine.items():
                assert np.array_equal(column[:rows], theirs[name][:rows]), name
        # Of the 50 rows that each lane has in lockstep: if one lane takes all steps, those of that lane.
        assert compared >= 50


@pytest.mark.parametrize("settings", ({}, {"batch_size": 3}, {"batch_size": 1}))
def test_all_that_can_be_asked_for_of_a_pool(settings):
    with outrider.make_vec(pool(max_episode_steps=9, **settings)) as envs:
        collector = collector_of(envs, seed=None)
        rollouts = [collector.rollout(20) for _ in range(3)]
        for rollout in rollouts:
            rollout.check()
            assert rollout.reward.shape == (20, 4)
            dummies = ~rollout.valid
            ends = rollout.terminated | rollout.truncated
            assert (dummies[1:] == ends[:-1]).all()
        assert len(collector.steps(31)) == 31
        some = collector.rollout(10, lanes=2)
        assert some.reward.shape == (10, 2)
        runs = []
        for count in (1, 6):
            episodes = collector.episodes(count)
            episodes.check()
            runs.append(episodes.num_steps)
            assert len(episodes) == count
            assert episodes.is_complete.all()
            assert (np.diff(episodes.boundaries) <= 9).all()
        taken = sum(map(len, rollouts)) + 31 + len(some) + sum(runs)
        assert collector.stats.steps == taken + collector.stats.carried
        collector.reset()
        assert len(collector.steps(40)) == 40
        assert len(outrider.evaluate(envs, outrider.RandomPolicy(envs.single_action_space), episodes=6).returns) == 6


@pytest.mark.parametrize("make", (lambda: pool(batch_size=3), pool, lambda: SyncVectorEnv(FACTORIES[:1] * 4)))
def test_after_an_interrupt_it_begins_anew(make):
    class Impatient(outrider.RandomPolicy):
        armed = False

        def act(self, obs, state, ctx):
            if self.armed:
                self.armed = False
                raise KeyboardInterrupt
            return super().act(obs, state, ctx)

    with outrider.make_vec(make()) as envs:
        policy = Impatient(envs.single_action_space)
        collector = outrider.Collector(envs, policy)
        assert len(collector.steps(30)) == 30
        policy.armed = True
        with pytest.raises(KeyboardInterrupt):
            collector.steps(30)
        assert len(collector.steps(30)) == 30
        # Between a request and its answer nobody can say where the lanes are.
        envs.driver.wait = envs.driver.exchange = interrupted
        with pytest.raises(KeyboardInterrupt):
            collector.steps(50)
        del envs.driver.wait, envs.driver.exchange
        steps = collector.steps(60)
        steps.check()
        assert len(collector.rollout(10)) <= 40
        assert len(collector.episodes(5)) == 5


def interrupted(*arguments):
    raise KeyboardInterrupt
