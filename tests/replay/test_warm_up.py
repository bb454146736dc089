"""Filling a replay buffer by another policy than the collector's own."""

import threading
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
from gymnasium import spaces

import outrider
from helpers.envs import NestedEnv, StrictEnv
from outrider import tree
from outrider.errors import ConfigError, PolicyError
from outrider.testing.traced import ACTIONS, Broken, Traced, TracedPolicy, Zeros

RANDOM = outrider.RandomPolicy(spaces.Discrete(ACTIONS))


@contextmanager
def inline(plan, make_policy):
    with outrider.make_vec(plan) as envs, outrider.Collector(envs, make_policy(), seed=0) as collector:
        yield collector


@contextmanager
def processes(plan, make_policy, wait_for=None):
    backend = outrider.Processes(2, "fork", wait_for=wait_for)
    with (
        outrider.make_vec(plan, backend=backend) as envs,
        outrider.Collector(envs, make_policy(), seed=0) as collector,
    ):
        yield collector


def own_pace(plan, make_policy):
    return processes(plan, make_policy, wait_for=1)


def parallel(plan, make_policy):
    backend = outrider.Processes(start_method="fork")
    return outrider.ParallelCollector(plan, make_policy, workers=2, backend=backend, seed=0)


everywhere = pytest.mark.parametrize("make", (inline, processes, own_pace, parallel))


def everything(replay):
    """All that a buffer holds, in the order of lanes and steps."""
    serials = replay._ring.serials()
    batch = replay._look.gather(serials, np.ones(len(serials)), np.random.default_rng())
    order = np.lexsort((batch.step, batch.episode_id, batch.env_id))
    return {
        name: getattr(batch, name)[order]
        for name in ("obs", "action", "reward", "next_obs", "env_id", "episode_id", "step", "version", "terminated")
    } | {"extras": tree.take(batch.extras, order)}


# -- counts, streams -------------------------------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("count", (1, 4, 145, 1200))
def test_exactly_as_many_random_steps_as_asked_for(make, count):
    with make(outrider.Envs(partial(Traced, (1, 2, 3, 5)), 4), Zeros) as collector:
        replay = collector.new_replay(10_000, seed=0)
        assert collector.fill(replay, count, RANDOM) == len(replay) == count
        replay.check()
        rows = everything(replay)
        assert (rows["version"] == -1).all()
        assert collector.stats.steps == count + collector.stats.carried
        if count > 100:
            assert np.unique(rows["action"]).tolist() == list(range(ACTIONS))
        # The reward tells which action the environment got.
        assert (rows["reward"].astype(int) == rows["action"]).all()


@everywhere
def test_the_rows_are_those_of_a_collector_with_that_policy(make):
    plan = outrider.Envs(partial(Traced, (1, 2, 3, 5), ("truncate",)), 4)
    with make(plan, Zeros) as collector, inline(plan, lambda: RANDOM) as other:
        replay, expected = collector.new_replay(10_000), other.new_replay(10_000)
        collector.fill(replay, 300, RANDOM)
        other.fill(expected, 4000)
        rows, wanted = everything(replay), everything(expected)
    for lane in range(4):
        mine, theirs = rows["env_id"] == lane, wanted["env_id"] == lane
        for name in ("obs", "action", "reward", "next_obs", "episode_id", "step", "terminated"):
            assert np.array_equal(rows[name][mine], wanted[name][theirs][: mine.sum()]), name


@everywhere
def test_episodes_go_on_from_one_policy_to_the_other(make):
    with make(outrider.Envs(partial(Traced, (50,)), 4), Zeros) as collector:
        replay = collector.new_replay(10_000)
        for _ in range(5):
            collector.fill(replay, 40, RANDOM)
            collector.fill(replay, 40)
        replay.check()
        assert collector.stats.cuts == 0
        rows = everything(replay)
    assert len(rows["step"]) == 400
    assert set(rows["version"]) == {-1, 0}
    assert (rows["action"][rows["version"] == 0] == 0).all()
    assert rows["action"][rows["version"] == -1].any()
    for lane in range(4):
        mine = rows["env_id"] == lane
        assert (np.diff(rows["version"][mine & (rows["episode_id"] == rows["episode_id"][mine][0])]) != 0).any()
        # All steps of a lane, one after the other.
        assert np.array_equal(rows["step"][mine], np.arange(mine.sum()) % 50)
        goes_on = mine[:-1] & mine[1:] & (rows["step"][1:] > 0)
        assert np.array_equal(rows["next_obs"][:-1][goes_on], rows["obs"][1:][goes_on])


@everywhere
def test_the_own_policy_has_its_version_back(make):
    with make(outrider.Envs(Traced, 4), lambda: Loading(1)) as collector:
        replay = collector.new_replay(1000)
        collector.publish(2)
        collector.fill(replay, 40, RANDOM)
        collector.publish(3)
        collector.fill(replay, 40)
        # One at a time may be under way for each lane.
        assert set(collector.rollout(4).version[-1]) == {2}
        rows = everything(replay)
    assert set(rows["version"]) <= {-1, 2}
    assert (rows["action"][rows["version"] == 2] == 3).all()


class Loading(Zeros):
    """Always the action that was published last."""

    def __init__(self, action):
        self.action = action

    def act(self, obs, state, ctx):
        return {"action": np.full(len(obs), self.action)}

    def load(self, tree):
        self.action = tree


def test_what_was_decided_ahead_is_decided_anew():
    with inline(outrider.Envs(Traced, 4), Zeros) as collector:
        assert collector.spec.num_envs == 4
        replay = collector.new_replay(100)
        collector.fill(replay, 4, Loading(3))
        assert everything(replay)["action"].tolist() == [3] * 4


def test_steps_that_were_carried_over_come_first():
    with inline(outrider.Envs(partial(Traced, (9,)), 4), lambda: Loading(1)) as collector:
        replay = collector.new_replay(100)
        collector.steps(1)
        collector.fill(replay, 6, Loading(3))
        collector.fill(replay, 4)
        assert np.sort(everything(replay)["action"]).tolist() == [1] * 3 + [1] * 3 + [3] * 4
        assert collector.stats.carried == 1


# -- conventions -----------------------------------------------------------------------------------------------------


class Saying(Zeros):
    """Always the same action, in a convention."""

    def __init__(self, action, actions=None):
        self.action = np.asarray(action)
        self.actions = actions

    def act(self, obs, state, ctx):
        return {"action": np.repeat(self.action[None], len(obs), 0)}


WIDE = spaces.Box(-2.0, 2.0, (2,), np.float32)
ASYMMETRIC = spaces.Box(-1.0, 3.0, (2,), np.float32)
HALF_OPEN = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, np.inf], np.float32))
F32 = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("space", "action_map", "own", "other", "sent", "stored"),
    (
        # The usual warm-up: a random member of the space.
        (WIDE, "rescale", None, ("env", [2.0, -1.0]), [2.0, -1.0], [1.0, -0.5]),
        (ASYMMETRIC, "rescale", None, ("env", [3.0, 0.0]), [3.0, 0.0], [1.0, -0.5]),
        (HALF_OPEN, "rescale", None, ("env", [1.0, 70.0]), [1.0, 70.0], [0.5, 70.0]),
        (WIDE, "auto", "unit", ("env", [2.0, -1.0]), [2.0, -1.0], [1.0, -0.5]),
        (WIDE, "clip", "unit", ("env", [2.0, -1.0]), [2.0, -1.0], [2.0, -1.0]),
        (WIDE, "auto", None, ("env", [2.0, -1.0]), [2.0, -1.0], [2.0, -1.0]),
        # Under "rescale" even a policy that speaks the environment's language is stored in [-1, 1].
        (WIDE, "rescale", "env", ("env", [2.0, -1.0]), [2.0, -1.0], [1.0, -0.5]),
        (WIDE, "rescale", "env", (None, [0.5, -0.5]), [1.0, -1.0], [0.5, -0.5]),
        # What is out of bounds: clipped as ever; stored is what was meant, where that can be said.
        (WIDE, "auto", None, (None, [5.0, -1.0]), [2.0, -1.0], [5.0, -1.0]),
        (WIDE, "auto", "unit", (None, [5.0, -1.0]), [2.0, -1.0], [1.0, -0.5]),
        (WIDE, "rescale", None, (None, [0.5, -4.0]), [1.0, -2.0], [0.5, -4.0]),
        (ASYMMETRIC, "auto", None, ("unit", [1.0, -0.5]), [3.0, 0.0], [3.0, 0.0]),
    ),
)
@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_boxes_are_stored_in_the_scale_of_the_own_policy(space, action_map, own, other, sent, stored, dtype):
    env, policy = StrictEnv(space), Saying(np.array(other[1], dtype), other[0])
    with (
        outrider.make_vec(outrider.Envs([lambda: env], 1)) as envs,
        outrider.Collector(envs, Saying(F32, own), seed=0, action_map=action_map) as collector,
    ):
        replay = collector.new_replay(100)
        collector.fill(replay, 3, policy)
        rows = everything(replay)
    assert rows["action"].dtype == np.float32
    assert rows["action"].tolist() == [stored] * 3
    assert [action.tolist() for action in env.received] == [sent] * 3


DISCRETE = spaces.Discrete(3, start=5)
SEVERAL = spaces.MultiDiscrete([3, 4], start=[5, -1])


@pytest.mark.parametrize(
    ("space", "own", "other", "sent", "stored"),
    (
        (DISCRETE, "index", ("env", 7), 7, 2),
        (DISCRETE, None, ("index", 2), 7, 7),
        (DISCRETE, "index", ("index", 2), 7, 2),
        (DISCRETE, "env", (None, 6), 6, 6),
        (SEVERAL, "index", ("env", [7, 0]), [7, 0], [2, 1]),
        (SEVERAL, "env", ("index", [2, 1]), [7, 0], [7, 0]),
    ),
)
def test_integers_are_stored_as_the_own_policy_counts(space, own, other, sent, stored):
    env = StrictEnv(space)
    first = np.full(space.shape, 0 if own == "index" else space.start, np.int32)
    with (
        outrider.make_vec(outrider.Envs([lambda: env], 1)) as envs,
        outrider.Collector(envs, Saying(first, own), seed=0) as collector,
    ):
        replay = collector.new_replay(100)
        collector.fill(replay, 3, Saying(other[1], other[0]))
        rows = everything(replay)
    assert rows["action"].dtype == np.int32
    assert rows["action"].tolist() == [stored] * 3
    assert [np.asarray(action).tolist() for action in env.received] == [sent] * 3


def test_nested_actions_in_any_order_of_keys():
    class Nested(Zeros):
        def act(self, obs, state, ctx):
            n = len(ctx.env_id)
            pair = np.zeros((n, 2)), np.zeros(n, np.int64)
            return {"action": {"bits": np.zeros((n, 2), np.int8), "move": pair}}

    with inline(outrider.Envs(NestedEnv, 3), Nested) as collector:
        rollout = collector.rollout(2)
        policy = outrider.RandomPolicy(collector.spec.action_space)
        replay = collector.new_replay(100)
        collector.fill(replay, 30, policy)
        assert replay.spec.action == outrider.StepSpec.of(rollout).action
        batch = replay.sample(30)
        assert np.unique(batch.action["move"][1]).tolist() == [-1, 0, 1]
        assert np.abs(batch.action["move"][0]).max() > 1


# -- states ----------------------------------------------------------------------------------------------------------


class Remembering(Zeros):
    """Its action and its extra are the number of decisions since its state was the initial one."""

    def initial_state(self, n):
        return np.full(n, 10)

    def act(self, obs, state, ctx):
        return {"action": (state - 10) % ACTIONS, "since": state - 10, "state": state + 1}


class Extra(Zeros):
    """Has no state, but the extra of `Remembering`."""

    def act(self, obs, state, ctx):
        return {"action": np.zeros(len(obs), int), "since": np.full(len(obs), -5), "more": np.zeros(len(obs))}


def test_a_recurrent_policy_goes_on_with_its_initial_state():
    with inline(outrider.Envs(partial(Traced, (7,)), 2), Remembering) as collector:
        collector.rollout(3)
        replay = collector.new_replay(1000, view=outrider.Sequences(1))
        collector.fill(replay, 4, Extra())
        collector.fill(replay, 8)
        serials = np.sort(replay._ring.serials())
        batch = replay._look.gather(serials, np.ones(len(serials)), np.random.default_rng())
        of_first = batch.env_id == 0
        step, since = (leaf[0][of_first] for leaf in (batch.step, batch.extras["since"]))
        state = batch.state[of_first]
    assert step.tolist() == [3, 4, 5, 6, 0, 1]
    # What was fed to a step: what the own policy had left, then its initial state until it has decided again.
    assert state.tolist() == [13, 10, 10, 11, 10, 11]
    assert since.tolist() == [-5, -5, 0, 1, 0, 1]


@everywhere
def test_a_recurrent_policy_stands_in_with_a_state_of_its_own(make):
    with make(outrider.Envs(partial(Traced, (203,)), 4), Zeros) as collector:
        replay = collector.new_replay(10_000)
        collector.fill(replay, 80)
        # More than the blocks that are added at once, and than an episode.
        collector.fill(replay, 1200, Remembering())
        rows = everything(replay)
    others = rows["version"] == -1
    assert others.sum() > 1190
    for lane in range(4):
        mine = others & (rows["env_id"] == lane)
        since, expected = -1, []
        for step in rows["step"][mine]:
            since = 0 if step == 0 else since + 1
            expected.append(since % ACTIONS)
        assert rows["action"][mine].tolist() == expected


@everywhere
def test_what_a_policy_is_told_when_it_stands_in(make):
    with make(outrider.Envs(partial(Traced, (1, 2, 3, 5)), 4), TracedPolicy) as collector:
        replay = collector.new_replay(10_000)
        for policy in (TracedPolicy(), None, TracedPolicy()):
            collector.fill(replay, 100, policy)
        replay.check()
        rows = everything(replay)
    is_first, step, lane_step, env_id = rows["extras"]["told"]
    assert np.array_equal(step, rows["step"])
    assert np.array_equal(is_first, step == 0)
    assert np.array_equal(env_id, rows["env_id"])
    assert np.array_equal(rows["extras"]["seen"], rows["obs"])
    for lane in range(4):
        mine = env_id == lane
        assert lane_step[mine].tolist() == list(range(mine.sum()))


# -- refusals --------------------------------------------------------------------------------------------------------


@everywhere
def test_an_extra_that_is_missing_is_named(make):
    with make(outrider.Envs(Traced, 4), Extra) as collector:
        replay = collector.new_replay(100)
        with pytest.raises(PolicyError, match=r"extras/since, extras/more, .*found action") as caught:
            collector.fill(replay, 10, RANDOM)
        assert "fill(policy=...)" in str(caught.value)
        assert len(replay) == 0


@pytest.mark.parametrize(
    ("own", "other", "match"),
    (
        (np.zeros(2), np.zeros(3), r"'extras/x'.*shape \(2,\) and dtype float64.*shape \(3,\)"),
        (np.zeros(2, int), np.zeros(2), r"'extras/x'.*dtype int64.*dtype float64"),
        (np.zeros(2, np.int8), np.full(2, 300), r"'extras/x'.*integers of int8.*from 300 to 300"),
        (np.zeros(2, np.float32), np.ones(2), None),
        (np.zeros(2, np.int8), np.ones(2, int), None),
    ),
)
def test_extras_have_to_fit_their_columns(own, other, match):
    class With(Zeros):
        def __init__(self, x):
            self.x = x

        def act(self, obs, state, ctx):
            return super().act(obs, state, ctx) | {"x": np.repeat(self.x[None], len(obs), 0)}

    with inline(outrider.Envs(Traced, 4), lambda: With(own)) as collector:
        replay = collector.new_replay(100)
        if match:
            with pytest.raises(PolicyError, match=match):
                collector.fill(replay, 10, With(other))
            assert (collector.stats.steps, len(replay)) == (0, 0)
            # The own policy decides again.
            assert collector.rollout(2).version.tolist() == [[0] * 4] * 2
        else:
            collector.fill(replay, 10, With(other))
            x = everything(replay)["extras"]["x"]
            assert (x.dtype, x.tolist()) == (own.dtype, [[1, 1]] * 10)


@pytest.mark.parametrize("make", (inline, own_pace))
def test_the_own_policy_decides_again_after_a_failure(make):
    with make(outrider.Envs(Traced, 4), lambda: Loading(1)) as collector:
        replay = collector.new_replay(1000)
        with pytest.raises(PolicyError, match="cannot go on"):
            collector.fill(replay, 400, Broken(3))
        before = len(replay)
        collector.fill(replay, 40)
        assert len(replay) == before + 40
        rollout = collector.rollout(5)
        assert (rollout.action[-1] == 1).all()
        assert (rollout.version[-1] == 0).all()


@everywhere
def test_no_policy_is_refused_before_anything_is_stepped(make):
    with make(outrider.Envs(Traced, 4), Zeros) as collector:
        replay = collector.new_replay(100)
        for bad in (outrider.RandomPolicy, 3, spaces.Discrete(2)):
            with pytest.raises(ConfigError, match="policy"):
                collector.fill(replay, 10, bad)
        assert collector.stats.steps == len(replay) == 0
        assert collector.fill(replay, 10) == 10


def test_a_policy_that_cannot_be_sent_is_refused():
    with parallel(outrider.Envs(Traced, 4), Zeros) as collector:
        replay = collector.new_replay(100)
        lock = threading.Lock()
        with pytest.raises(ConfigError, match=r"fill\(policy=.*sent to the workers"):
            collector.fill(replay, 10, lambda obs: lock)
        assert len(replay) == 0
        assert collector.fill(replay, 10, RANDOM) == 10


def test_a_policy_that_cannot_be_made_in_a_worker_is_a_failure():
    with parallel(outrider.Envs(Traced, 4), Zeros) as collector:
        replay = collector.new_replay(100)
        with pytest.raises(outrider.errors.OutriderError, match="cannot be made here"):
            collector.fill(replay, 10, Unmakeable())


class Unmakeable(Zeros):
    """Raises where it is unpickled."""

    def __reduce__(self):
        return raise_error, ()


def raise_error():
    raise ValueError("cannot be made here")


@pytest.mark.parametrize("actions", ("unit", None))
def test_integers_cannot_be_rescaled(actions):
    space = spaces.Box(0, 9, (2,), np.int64)
    with inline(outrider.Envs(partial(StrictEnv, space), 2), lambda: Saying([1, 2])) as collector:
        replay = collector.new_replay(100)
        policy = Saying([1, 2], actions)
        if actions:
            with pytest.raises(ConfigError, match="Boxes of floats"):
                collector.fill(replay, 10, policy)
            assert collector.stats.steps == 0
        else:
            collector.fill(replay, 10, policy)
