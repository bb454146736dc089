"""Epsilon-greedy policies: how often they explore and with what, schedules, masks, and what they leave alone."""

import copy
from functools import partial

import cloudpickle
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import outrider
from outrider import tree
from outrider.errors import ConfigError, PolicyError
from outrider.policies.base import Context, Policy

CHOICES = spaces.Discrete(5)


def at(steps, space=CHOICES, seed=0, num_envs=1, info=None):
    """A context of lanes 0, 1, ... at these steps of theirs."""
    steps = np.asarray(steps, np.int64)
    return Context(np.arange(len(steps)), steps == 0, steps, steps, info or {}, seed, num_envs, space)


def always(value, obs):
    return np.full(len(obs), value)


def act(policy, ctx, obs=None):
    obs = np.zeros((len(ctx.env_id), 1)) if obs is None else obs
    return policy.act(obs, policy.initial_state(len(ctx.env_id)), ctx)["action"]


def chi_square(values, probabilities):
    counts = np.bincount(values, minlength=len(probabilities))
    expected = len(values) * np.asarray(probabilities)
    return ((counts - expected) ** 2 / expected).sum()


# -- frequencies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", (0.1, 0.5, 1.0))
def test_each_choice_has_its_probability(epsilon):
    policy = outrider.EpsilonGreedy(partial(always, 3), epsilon)
    values = np.concatenate([act(policy, at(np.full(500, step))) for step in range(40)])
    probabilities = np.full(5, epsilon / 5)
    probabilities[3] += 1 - epsilon
    assert chi_square(values, probabilities) < 18.5  # 4 degrees of freedom, p = 0.001


def test_lanes_and_steps_explore_independently():
    policy = outrider.EpsilonGreedy(partial(always, 0), 0.5)
    explored = np.array([act(policy, at(np.full(200, step), spaces.Discrete(10**6))) != 0 for step in range(200)])
    for first, second in ((explored[1:], explored[:-1]), (explored[:, 1:], explored[:, :-1])):
        assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.02


def test_what_is_tried_does_not_depend_on_whether_it_was_likely():
    policy = outrider.EpsilonGreedy(partial(always, 0), 0.02)
    tried = np.concatenate([act(policy, at(np.full(500, step), spaces.Discrete(10**6))) for step in range(40)])
    tried = tried[tried > 0] * 4 // 10**6
    assert chi_square(tried, np.full(4, 0.25)) < 16.3  # 3 degrees of freedom, p = 0.001


def test_epsilon_0_is_the_policy_and_1_never_needs_it():
    ctx = at(np.zeros(1000))
    assert (act(outrider.EpsilonGreedy(partial(always, 3), 0), ctx) == 3).all()
    one = act(outrider.EpsilonGreedy(partial(always, 3), 1.0), ctx)
    np.testing.assert_array_equal(one, act(outrider.EpsilonGreedy(partial(always, 0), 1.0), ctx))


@pytest.mark.parametrize("inner", (outrider.RandomPolicy(CHOICES, 0), outrider.EpsilonGreedy(partial(always, 0), 1.0)))
def test_wrapped_chance_is_another_chance(inner):
    ctx = at(np.zeros(5000))
    own, outer = act(inner, ctx), act(outrider.EpsilonGreedy(inner, 1.0), ctx)
    assert chi_square(own * 5 + outer, np.full(25, 1 / 25)) < 51  # 24 degrees of freedom, p = 0.001


# -- spaces and conventions --------------------------------------------------------------------------------------------

SPACES = {
    "start": spaces.Discrete(3, start=-1),
    "multi-discrete": spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[-1, 0], [5, 9]]),
    "multi-binary": spaces.MultiBinary(4),
    "nested": spaces.Dict(b=spaces.Tuple((spaces.Discrete(2), spaces.MultiDiscrete([2, 2]))), a=spaces.Discrete(7)),
}


@pytest.mark.parametrize("name", SPACES)
def test_members_of_the_space_row_by_row(name):
    space = SPACES[name]
    own = outrider.RandomPolicy(space, 1).act(None, None, at(np.zeros(400)))["action"]
    mixed = act(outrider.EpsilonGreedy(lambda obs: own, 0.5), at(np.zeros(400), space))
    assert all(space.contains(tree.map(lambda leaf, row=row: leaf[row, ...], mixed)) for row in range(400))
    same = [(a == b).reshape(400, -1).all(axis=1) for a, b in zip(tree.leaves(own), tree.leaves(mixed), strict=True)]
    assert 150 < np.all(same, axis=0).sum() < 350


def test_keys_in_another_order_get_what_is_theirs():
    space = spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(2, start=10))
    own = {"b": np.full(50, 10), "a": np.zeros(50, np.int64)}
    mixed = act(outrider.EpsilonGreedy(lambda obs: own, 1.0), at(np.zeros(50), space))
    assert set(mixed["a"].tolist()) == {0, 1}
    assert set(mixed["b"].tolist()) == {10, 11}
    assert (own["b"] == 10).all()


class Index(Policy):
    """Counts actions from 0."""

    actions = "index"

    def act(self, obs, state, ctx):
        return {"action": np.zeros(len(obs), np.int64)}


def test_random_actions_are_in_the_policy_s_convention():
    policy = outrider.EpsilonGreedy(Index(), 1.0)
    assert policy.actions == "index"
    assert set(act(policy, at(np.zeros(100), spaces.Discrete(3, start=7))).tolist()) == {0, 1, 2}
    policy.policy.actions = "env"
    assert set(act(policy, at(np.zeros(100), spaces.Discrete(3, start=7))).tolist()) == {7, 8, 9}


def test_a_dtype_too_small_for_the_space_is_refused():
    policy = outrider.EpsilonGreedy(lambda obs: np.zeros(len(obs), np.int8), 1.0)
    with pytest.raises(PolicyError, match="dtype int8"):
        act(policy, at(np.zeros(50), spaces.Discrete(1000)))


def test_bools_stay_bools():
    policy = outrider.EpsilonGreedy(lambda obs: np.zeros(len(obs), np.bool_), 1.0)
    found = act(policy, at(np.zeros(50), spaces.Discrete(2)))
    assert found.dtype == np.bool_
    assert 10 < found.sum() < 40


# -- the count of steps ------------------------------------------------------------------------------------------------


def test_a_schedule_gets_the_steps_of_all_lanes():
    asked = []

    def schedule(step):
        asked.append(step)
        return 1.0 if step >= 20 else 0.0

    policy = outrider.EpsilonGreedy(partial(always, 9), schedule)
    found = act(policy, at([4, 5, 4, 6], spaces.Discrete(10**9), num_envs=4))
    assert asked == [16, 20, 24]
    assert ((found != 9) == [False, True, False, True]).all()
    assert all(type(step) is int for step in asked)


@pytest.mark.parametrize("backend", (outrider.Inline(), outrider.Processes(2, "fork")), ids=("inline", "processes"))
def test_exact_steps_of_a_collector(backend):
    asked = []
    policy = outrider.EpsilonGreedy(partial(always, 0), lambda step: (asked.append(step), 0.5)[1])
    with (
        outrider.make_vec("CartPole-v1", 4, backend=backend) as envs,
        outrider.Collector(envs, policy, seed=0) as collector,
    ):
        replay = collector.new_replay(100, seed=0)
        collector.fill(replay, 8, policy=outrider.RandomPolicy(envs.single_action_space))
        assert asked in ([0], [0, 8])  # the first decision says what is stored; the warm-up makes two steps
        del asked[:]
        collector.rollout(3)
        assert asked[-1] in (16, 20)
        assert asked == list(range(asked[0], asked[-1] + 1, 4))


@pytest.mark.parametrize("bad", (1.5, -0.1, np.nan, np.inf, "0.1", None, True, [0.1]))
def test_epsilon_out_of_range(bad):
    with pytest.raises(ConfigError, match=r"EpsilonGreedy\(epsilon\)"):
        outrider.EpsilonGreedy(partial(always, 0), bad)
    with pytest.raises(PolicyError, match=r"at step 12"):
        act(outrider.EpsilonGreedy(partial(always, 0), lambda step: bad), at([4, 4], num_envs=3))


@pytest.mark.parametrize("number", (np.float32(0.5), np.int64(1), np.array(0.5)))
def test_numbers_of_numpy_are_numbers(number):
    outrider.EpsilonGreedy(partial(always, 0), number)
    assert act(outrider.EpsilonGreedy(partial(always, 0), lambda step: number), at([0])).shape == (1,)


# -- masks -------------------------------------------------------------------------------------------------------------


@given(st.data())
def test_masked_choices_are_allowed(data):
    widths = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    rows = [
        [data.draw(st.lists(st.booleans(), min_size=width, max_size=width).filter(any)) for width in widths]
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    mask = np.array([[choice for part in row for choice in part] for row in rows])
    space = spaces.MultiDiscrete(widths, start=[3] * len(widths))
    inner = lambda obs: np.zeros((len(obs), len(widths)), np.int64) + 3  # noqa: E731 - the simplest policy
    policy = outrider.EpsilonGreedy(inner, 1.0, mask=lambda obs, ctx: mask)
    found = act(policy, at(np.arange(len(rows)), space)) - 3
    for row, chosen in zip(rows, found, strict=True):
        assert all(part[choice] for part, choice in zip(row, chosen, strict=True))


def test_allowed_choices_are_equally_likely():
    mask = np.array([1, 0, 1, 1, 0], np.int8)
    policy = outrider.EpsilonGreedy(partial(always, 1), 1.0, mask=lambda obs, ctx: np.tile(mask, (len(obs), 1)))
    found = act(policy, at(np.zeros(9000)))
    assert set(found.tolist()) == {0, 2, 3}
    assert chi_square(np.searchsorted([0, 2, 3], found), np.full(3, 1 / 3)) < 13.8  # 2 degrees, p = 0.001


def test_masks_of_observations_are_read_before_the_policy_writes_to_them():
    def spoiling(obs):
        obs["mask"][:] = 1
        return np.zeros(len(obs["mask"]), np.int64)

    policy = outrider.EpsilonGreedy(spoiling, 1.0, mask=lambda obs, ctx: obs["mask"])
    obs = {"mask": np.tile(np.array([False, False, True, False, False]), (20, 1))}
    assert (act(policy, at(np.zeros(20)), obs) == 2).all()


def test_masks_of_infos():
    policy = outrider.EpsilonGreedy(partial(always, 0), 1.0, mask=lambda obs, ctx: ctx.obs_info["mask"])
    info = {"mask": np.eye(5, dtype=np.int8)}
    assert act(policy, at(np.zeros(5), info=info)).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("mask", "words"),
    (
        (np.ones((3, 4)), "float64"),
        (np.ones((3, 4), bool), r"shape \(3, 5\)"),
        (np.ones(5, bool), r"shape \(3, 5\)"),
        (np.array([[1] * 5, [0] * 5, [1] * 5]), "lane 1"),
        (None, "object"),
    ),
    ids=("floats", "too narrow", "one row", "nothing allowed", "none"),
)
def test_wrong_masks_are_refused(mask, words):
    policy = outrider.EpsilonGreedy(partial(always, 0), 1.0, mask=lambda obs, ctx: mask)
    with pytest.raises(PolicyError, match=words):
        act(policy, at(np.zeros(3)))


def test_a_mask_is_a_function_and_names_choices():
    with pytest.raises(ConfigError, match=r"EpsilonGreedy\(mask\)"):
        outrider.EpsilonGreedy(partial(always, 0), 1.0, mask=np.ones(5))
    policy = outrider.EpsilonGreedy(partial(always, 0), 1.0, mask=lambda obs, ctx: None)
    with pytest.raises(ConfigError, match="mask can name"):
        policy.check_action_space(spaces.MultiBinary(2))


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", (spaces.Box(-1, 1, (2,)), spaces.Dict(a=CHOICES, b=spaces.Box(0, 9, (1,), np.int8))))
def test_continuous_spaces_are_refused_when_a_collector_is_made(space):
    env = partial(Acting, space)
    with (
        outrider.make_vec(env, 2, backend=outrider.Inline()) as envs,
        pytest.raises(ConfigError, match=r"action space.*Box.*ActionNoise"),
    ):
        outrider.Collector(envs, outrider.EpsilonGreedy(partial(always, 0), 0.5))


def test_and_when_it_is_lent_to_fill():
    with (
        outrider.make_vec("Pendulum-v1", 2, backend=outrider.Inline()) as envs,
        outrider.Collector(envs, outrider.RandomPolicy(envs.single_action_space)) as collector,
    ):
        replay = collector.new_replay(100)
        with pytest.raises(ConfigError, match="Box"):
            collector.fill(replay, 10, policy=outrider.EpsilonGreedy(partial(always, 0), 0.5))
        assert collector.fill(replay, 10) == 10


def Acting(space):  # noqa: N802 - it stands for an environment
    from helpers.envs import CounterEnv

    env = CounterEnv()
    env.action_space = space
    return env


@pytest.mark.parametrize(
    ("output", "words"),
    (
        (np.zeros((3, 1), np.int64), r"shape \(3,\)"),
        (np.zeros(2, np.int64), "3 rows"),
        (np.zeros(3), "integers"),
        ({"a": np.zeros(3, np.int64)}, "one array"),
    ),
    ids=("column", "too few", "floats", "dict"),
)
def test_wrong_actions_of_the_policy_are_refused(output, words):
    with pytest.raises(PolicyError, match=words):
        act(outrider.EpsilonGreedy(lambda obs: output, 1.0), at(np.zeros(3)))


def test_no_space_and_no_action_are_told():
    policy = outrider.EpsilonGreedy(partial(always, 0), 1.0)
    with pytest.raises(PolicyError, match="action_space"):
        policy.act(np.zeros((2, 1)), None, Context.start(2))

    class Silent(Policy):
        def act(self, obs, state, ctx):
            return {}

    with pytest.raises(PolicyError, match='the key "action"'):
        act(outrider.EpsilonGreedy(Silent(), 1.0), at(np.zeros(2)))
    with pytest.raises(ConfigError, match="function of the observation"):
        outrider.EpsilonGreedy(3, 0.5)


# -- what stays the policy's own ---------------------------------------------------------------------------------------


class Recurrent(Policy):
    """Counts its steps in its state, and tells what it would have done."""

    def __init__(self):
        self.sessions = 0
        self.weights = None

    def initial_state(self, n):
        return {"count": np.zeros((n, 1))}

    def act(self, obs, state, ctx):
        own = state["count"][:, 0].astype(np.int64) % 2
        return {"action": own, "own": own.copy(), "state": {"count": state["count"] + 1}}

    def session(self):
        self.sessions += 1
        return super().session()

    def load(self, tree):
        self.weights = tree

    def deterministic(self):
        return self


def test_extras_states_sessions_and_weights_are_the_policy_s():
    inner = Recurrent()
    policy = outrider.EpsilonGreedy(outrider.EpsilonGreedy(inner, 0.5), 0.5)
    with (
        outrider.make_vec("CartPole-v1", 4, backend=outrider.Inline()) as envs,
        outrider.Collector(envs, policy, seed=0) as collector,
    ):
        rollout = collector.rollout(64)
        assert collector.publish({"w": 1}) == 1
        after = collector.rollout(4)
    assert rollout.state["count"].shape == (65, 4, 1)
    np.testing.assert_array_equal(rollout.state["count"][:-1, :, 0], rollout.step)
    np.testing.assert_array_equal(rollout.extras["own"], rollout.step % 2)
    assert 0.2 < (rollout.action != rollout.extras["own"]).mean() < 0.55
    assert inner.sessions >= 2
    assert inner.weights == {"w": 1}
    assert (after.version[1:] == 1).all()


def test_deterministic_is_what_is_inside():
    inner = Recurrent()
    assert outrider.EpsilonGreedy(outrider.EpsilonGreedy(inner, 0.5), 0.5).deterministic() is inner
    greedy = outrider.EpsilonGreedy(partial(always, 3), 1.0).deterministic()
    assert (act(greedy, at(np.zeros(100))) == 3).all()


def test_who_does_not_say_what_it_does_without_chance_is_refused():
    with pytest.raises(PolicyError, match=r"Index.*define deterministic"):
        outrider.EpsilonGreedy(Index(), 0.1).deterministic()
    with pytest.raises(PolicyError, match="RandomPolicy"):
        outrider.RandomPolicy(CHOICES).deterministic()


def test_copies_act_alike():
    policy = outrider.EpsilonGreedy(
        partial(always, 0), lambda step: 0.5, mask=lambda obs, ctx: np.ones((len(obs), 5)) > 0
    )
    ctx = at(np.arange(100))
    before = act(policy, ctx)
    for twin in (copy.deepcopy(policy), cloudpickle.loads(cloudpickle.dumps(policy))):
        np.testing.assert_array_equal(act(twin, ctx), before)
